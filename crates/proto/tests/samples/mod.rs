//! One value of each message and each of its variants, with every field set to something of its own.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use snowskin_proto::hello::{Greeting, Hello, Role, Token, Welcome};
use snowskin_proto::message::{Closing, ReadFailed};
use snowskin_proto::{EngineAccess, EngineDescription, EngineNotified, EngineNotify, EngineRegion};
use snowskin_proto::{RangeRead, RangeRequest, RangeSums, RangeWrite, ReadHead, WriteDone};
use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::call::*;
use snowskin_types::checksum::PieceSums;
use snowskin_types::error::{Code, Detail, Failure, Stage};
use snowskin_types::id::{ClientId, ClusterId, Epoch, NodeId, Seq, Session, Term};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::link::*;
use snowskin_types::object::{Attributes, Place, Shape, Tier};
use snowskin_types::policy::{ClusterPolicy, EvictionPolicy};
use snowskin_types::time::Millis;
use snowskin_types::version::Version;

pub fn version(counter: u64) -> Version {
    Version::new(Term(3), counter).unwrap()
}

fn tenant() -> Tenant {
    Tenant::new("team-a").unwrap()
}

fn key(bytes: &[u8]) -> Key {
    Key::new(bytes).unwrap()
}

fn name(bytes: &[u8]) -> ObjectName {
    ObjectName::new(tenant(), key(bytes))
}

fn keys(list: &[&[u8]]) -> Keys {
    list.iter()
        .map(|bytes| key(bytes))
        .collect::<Vec<_>>()
        .iter()
        .collect()
}

fn place(n: u64) -> Place {
    Place {
        node: NodeId(n),
        epoch: Epoch(n + 100),
        address: format!("10.0.0.{n}:7000").into(),
    }
}

fn session() -> Session {
    Session {
        term: Term(3),
        n: 9,
    }
}

fn attributes() -> Attributes {
    Attributes {
        hard_pin: true,
        soft_pin: Some(Millis(30_000)),
        group: Some("layer-7".into()),
        data_type: 4,
    }
}

fn shape() -> Shape {
    Shape {
        size: 262_145,
        checksum: 0xae8b_1486_0a79_9888,
    }
}

fn failure() -> Failure {
    Failure::new(Code::NoSpace, Stage::Write, "no space within 500 ms")
        .with_key(&key(b"a\0b"))
        .with_peer("10.0.0.1:7000")
        .with_detail(Detail {
            wanted: 1,
            free: 2,
            largest: 3,
            leased: 4,
            pinned: 5,
            unfinished: 6,
        })
}

pub fn hellos() -> Vec<(&'static str, Hello)> {
    let full = Greeting {
        features: 5,
        ..Greeting::new(Role::Client, 0x1122_3344_5566_7788)
            .with_cluster(Some(ClusterId(42)))
            .with_token(Token::new(b"secret").unwrap())
    };
    vec![
        ("hello-bare", Hello(Greeting::new(Role::Node, 1))),
        ("hello-full", Hello(full)),
    ]
}

pub fn welcomes() -> Vec<(&'static str, Welcome)> {
    vec![("welcome", Welcome(Greeting::new(Role::Master, 7)))]
}

pub fn closings() -> Vec<(&'static str, Closing)> {
    vec![("closing", Closing(failure()))]
}

pub fn requests() -> Vec<(&'static str, Request)> {
    let (tenant, node, epoch) = (tenant(), NodeId(1), Epoch(101));
    let three = || keys(&[b"a", b"\xff\x00", "schl\u{fc}ssel".as_bytes()]);
    let reserve = Reserve {
        size: 262_145,
        mode: PutMode::Replace,
        replicas: 2,
        attributes: attributes(),
        preferred: vec![NodeId(1), NodeId(2)],
        avoid: vec![NodeId(3)],
    };
    let plain = Reserve {
        size: 1,
        replicas: 1,
        ..Reserve::default()
    };
    let lease = Some(Millis(1_000));
    vec![
        (
            "request-reserve",
            Request::Reserve {
                client: ClientId(9),
                tenant: tenant.clone(),
                keys: keys(&[b"a", b"b"]),
                items: vec![reserve, plain],
            },
        ),
        (
            "request-cancel",
            Request::Cancel {
                tenant: tenant.clone(),
                keys: keys(&[b"a"]),
                versions: vec![version(5)],
            },
        ),
        (
            "request-locate",
            Request::Locate {
                tenant: tenant.clone(),
                keys: three(),
                lease,
            },
        ),
        (
            "request-exists",
            Request::Exists {
                tenant: tenant.clone(),
                keys: three(),
                lease: None,
            },
        ),
        (
            "request-remove",
            Request::Remove {
                tenant: tenant.clone(),
                keys: three(),
                force: true,
            },
        ),
        (
            "request-remove-many-all",
            Request::RemoveMany {
                tenant: None,
                filter: Filter::All,
                force: false,
            },
        ),
        (
            "request-remove-many-regex",
            Request::RemoveMany {
                tenant: Some(tenant.clone()),
                filter: Filter::Regex("^a.*".to_owned()),
                force: true,
            },
        ),
        (
            "request-report",
            Request::Report {
                tenant: tenant.clone(),
                key: key(b"a"),
                version: version(5),
                node,
                epoch,
                fault: Fault::Bad,
            },
        ),
        (
            "request-list",
            Request::List {
                tenant: tenant.clone(),
                filter: Filter::Prefix(b"a/".to_vec()),
                after: Some(b"a/7".to_vec()),
                limit: 100,
            },
        ),
        (
            "request-stat-object",
            Request::StatObject {
                tenant,
                key: key(b"a"),
            },
        ),
        ("request-stat", Request::Stat),
    ]
}

pub fn replies() -> Vec<(&'static str, Reply)> {
    let places = vec![place(1), place(2)];
    let replicas = vec![
        Replica {
            place: 1,
            tier: Tier::Dram,
        },
        Replica {
            place: 0,
            tier: Tier::Ssd,
        },
    ];
    vec![
        (
            "reply-reserved",
            Reply::Reserved {
                places: places.clone(),
                items: vec![
                    Reserved::Placed {
                        version: version(5),
                        places: vec![0, 1],
                    },
                    Reserved::Exists {
                        version: version(4),
                        unfinished: true,
                    },
                    Reserved::Failed(failure()),
                ],
            },
        ),
        (
            "reply-cancelled",
            Reply::Cancelled(vec![
                Cancelled::Ended,
                Cancelled::Published,
                Cancelled::Failed(failure()),
            ]),
        ),
        (
            "reply-located",
            Reply::Located {
                places,
                items: vec![
                    Located::Found {
                        version: version(5),
                        shape: shape(),
                        lease: Millis(10_000),
                        replicas,
                    },
                    Located::Missing,
                    Located::Failed(failure()),
                ],
            },
        ),
        (
            "reply-exists",
            Reply::Exists(vec![
                Existing::Yes {
                    lease: Millis(10_000),
                    size: 77,
                },
                Existing::No,
                Existing::Failed(failure()),
            ]),
        ),
        (
            "reply-removed",
            Reply::Removed(vec![Ok(()), Err(failure())]),
        ),
        (
            "reply-removed-many",
            Reply::RemovedMany {
                removed: 5,
                leased: 2,
            },
        ),
        ("reply-noted", Reply::Noted),
        (
            "reply-listed",
            Reply::Listed {
                keys: keys(&[b"a", b"b\xff"]),
                more: true,
            },
        ),
        ("reply-object-none", Reply::Object(None)),
        (
            "reply-object",
            Reply::Object(Some(ObjectStat {
                version: version(5),
                shape: shape(),
                lease_left: Millis(1),
                exists_cap_left: Millis(2),
                attributes: attributes(),
                replicas: vec![ReplicaStat {
                    place: place(1),
                    tier: Tier::Ssd,
                    state: "published".to_owned(),
                    version: version(5),
                }],
            })),
        ),
        (
            "reply-cluster",
            Reply::Cluster(ClusterStat {
                term: Term(3),
                objects: 1,
                bytes: 2,
                leased: 3,
                unfinished: 4,
                ready: true,
                nodes: vec![NodeStat {
                    place: place(1),
                    state: NodeState::Suspect,
                    host: "host-1".to_owned(),
                    dram_used: 5,
                    dram_capacity: 6,
                    replicas: 7,
                    policy: "lru (master)".to_owned(),
                    replica_bytes: 0,
                    owed: 0,
                    figures: None,
                    figures_age: Millis(0),
                }],
            }),
        ),
        (
            "reply-cluster-figures",
            Reply::Cluster(ClusterStat {
                nodes: vec![NodeStat {
                    place: place(1),
                    state: NodeState::Alive,
                    host: "host-1".to_owned(),
                    dram_used: 5,
                    dram_capacity: 6,
                    replicas: 7,
                    policy: String::new(),
                    replica_bytes: 8,
                    owed: 9,
                    figures: Some(figures()),
                    figures_age: Millis(10),
                }],
                ..ClusterStat::default()
            }),
        ),
        ("reply-failed", Reply::Failed(failure())),
    ]
}

fn figures() -> NodeFigures {
    NodeFigures {
        held: 1,
        held_bytes: 2,
        pins: 3,
        reads: 4,
        put_waited: 5,
        put_wait_failed: 6,
        checksum_failures: 7,
    }
}

pub fn from_node() -> Vec<(&'static str, FromNode)> {
    let (name, version) = (name(b"a"), version(5));
    vec![
        (
            "from-node-register",
            FromNode::Register(Register {
                node: NodeId(1),
                epoch: Epoch(101),
                address: "10.0.0.1:7000".into(),
                host: "host-1".into(),
                capacity: 1 << 30,
                largest: 1 << 29,
                cluster: Some(ClusterId(42)),
                last_session: session(),
                holds: 12,
                stamp: Stamp(99),
            }),
        ),
        (
            "from-node-batch",
            FromNode::Batch {
                session: session(),
                seq: Seq(17),
                items: vec![
                    NodeItem::Publish {
                        name: name.clone(),
                        version,
                        shape: shape(),
                        tier: Tier::Ssd,
                        attributes: attributes(),
                        acked: true,
                        inventory: true,
                    },
                    NodeItem::Retract {
                        name: name.clone(),
                        version,
                        bad: true,
                    },
                    NodeItem::Absent { name, version },
                    NodeItem::InventoryEnd,
                ],
            },
        ),
        (
            "from-node-pong",
            FromNode::Pong {
                session: session(),
                nonce: 5,
                stamp: Stamp(99),
                used: 6,
                largest_free: 7,
                policy: Some("lru (master)".to_owned()),
                figures: None,
            },
        ),
        (
            "from-node-pong-figures",
            FromNode::Pong {
                session: session(),
                nonce: 5,
                stamp: Stamp(99),
                used: 6,
                largest_free: 7,
                policy: None,
                figures: Some(figures()),
            },
        ),
        ("from-node-leave", FromNode::Leave { session: session() }),
    ]
}

pub fn to_node() -> Vec<(&'static str, ToNode)> {
    let items = vec![(name(b"a"), version(5)), (name(b"b"), version(6))];
    vec![
        (
            "to-node-registered",
            ToNode::Registered {
                session: session(),
                cluster: ClusterId(42),
                stamp: Stamp(99),
                serving: Millis(5_000),
                policy: ClusterPolicy {
                    eviction_policy: EvictionPolicy::S3Fifo,
                    ..ClusterPolicy::default()
                },
            },
        ),
        (
            "to-node-refused",
            ToNode::Refused {
                failure: failure(),
                retry: true,
            },
        ),
        (
            "to-node-ack",
            ToNode::Ack {
                session: session(),
                seq: Seq(17),
                results: vec![
                    (0, ItemResult::Ok),
                    (1, ItemResult::Pending),
                    (2, ItemResult::Refused),
                    (3, ItemResult::Leased(Millis(70))),
                    (9, ItemResult::Held(Millis(80))),
                ],
            },
        ),
        (
            "to-node-retire",
            ToNode::Retire {
                session: session(),
                items: items.clone(),
            },
        ),
        (
            "to-node-verify",
            ToNode::Verify {
                session: session(),
                items: vec![(name(b"a"), version(5), Fault::Gone)],
            },
        ),
        (
            "to-node-ping",
            ToNode::Ping {
                session: session(),
                nonce: 5,
                confirmed: Stamp(98),
            },
        ),
        (
            "to-node-evict-next",
            ToNode::EvictNext {
                session: session(),
                items,
            },
        ),
    ]
}

pub fn writes() -> Vec<(&'static str, WriteRequest)> {
    let write = WriteRequest {
        epoch: Epoch(101),
        name: name(b"a"),
        version: version(5),
        size: 262_145,
        sums: PieceSums(Box::new([1, 2])),
        attributes: attributes(),
        patience: Millis(500),
    };
    vec![("write", write)]
}

pub fn writes_done() -> Vec<(&'static str, WriteDone)> {
    vec![
        ("write-done-ok", WriteDone(Ok(()))),
        ("write-done-failed", WriteDone(Err(failure()))),
    ]
}

pub fn reads() -> Vec<(&'static str, ReadRequest)> {
    let read = ReadRequest {
        epoch: Epoch(101),
        name: name(b"a"),
        version: version(5),
        offset: 1,
        len: u64::MAX,
    };
    vec![("read", read)]
}

pub fn heads() -> Vec<(&'static str, ReadHead)> {
    let sums = PieceSums(Box::new([7, 8]));
    vec![(
        "read-head",
        ReadHead {
            shape: shape(),
            offset: 1,
            len: 262_144,
            sums,
        },
    )]
}

pub fn reads_failed() -> Vec<(&'static str, ReadFailed)> {
    vec![("read-failed", ReadFailed(failure()))]
}

fn range() -> RangeRequest {
    RangeRequest {
        epoch: Epoch(101),
        region: 3,
        offset: 1,
        len: 262_145,
    }
}

pub fn range_reads() -> Vec<(&'static str, RangeRead)> {
    vec![("range-read", RangeRead(range()))]
}

pub fn range_writes() -> Vec<(&'static str, RangeWrite)> {
    vec![("range-write", RangeWrite(range()))]
}

pub fn range_sums() -> Vec<(&'static str, RangeSums)> {
    vec![("range-sums", RangeSums(PieceSums(Box::new([7, 8]))))]
}

pub fn engine_descriptions() -> Vec<(&'static str, EngineDescription)> {
    let region = |base, len, region, access| EngineRegion {
        base,
        len,
        region,
        access,
    };
    let description = EngineDescription {
        epoch: Epoch(101),
        data_port: 15_001,
        generation: 4,
        regions: vec![
            region(0x7f00_0000_1000, 4096, 1, EngineAccess::Both),
            region(0x7f00_0000_2000, 1, 2, EngineAccess::Read),
            region(0x10_0000_0000, 1 << 40, 9, EngineAccess::Write),
        ],
    };
    vec![("engine-description", description)]
}

pub fn engine_notifies() -> Vec<(&'static str, EngineNotify)> {
    let notify = EngineNotify {
        name: "request-7".to_owned(),
        message: "done".to_owned(),
    };
    vec![("engine-notify", notify)]
}

pub fn engine_notified() -> Vec<(&'static str, EngineNotified)> {
    vec![
        ("engine-notified-ok", EngineNotified(Ok(()))),
        ("engine-notified-failed", EngineNotified(Err(failure()))),
    ]
}
