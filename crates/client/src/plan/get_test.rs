use super::*;
use snowskin_types::call::Replica;
use snowskin_types::{Epoch, Millis};

const LEASE: Millis = Millis(6400);

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn place(node: u64) -> Place {
    Place {
        node: NodeId(node),
        epoch: Epoch(node * 10),
        address: format!("node{node}:1").into(),
    }
}

fn shape() -> Shape {
    Shape {
        size: 100,
        checksum: 7,
    }
}

fn found(version: u64, replicas: &[u16]) -> Located {
    Located::Found {
        version: Version::from_raw(version),
        shape: shape(),
        lease: LEASE,
        replicas: replicas
            .iter()
            .map(|&place| Replica {
                place,
                tier: Tier::Dram,
            })
            .collect(),
    }
}

fn whole(name: &str) -> Want {
    Want::whole(key(name), Some(100))
}

fn plan(wants: Vec<Want>) -> Get {
    Get::new(Tenant::default(), wants, Now(30_000), None, |_| None)
}

fn cached(version: u64, replicas: &[u64], until: u64) -> Location {
    Location {
        version: Version::from_raw(version),
        shape: shape(),
        replicas: replicas.iter().map(|&n| (place(n), Tier::Dram)).collect(),
        valid_until: Now(until),
    }
}

fn step(get: &mut Get, now: u64, event: Event) -> Vec<Step> {
    let mut out = Vec::new();
    get.handle(Now(now), event, &mut out);
    out
}

/// Places 1, 2, 3 are the table of every reply.
fn answer(get: &mut Get, now: u64, call: CallId, items: Vec<Located>) -> Vec<Step> {
    let reply = Ok((vec![place(1), place(2), place(3)], items));
    step(
        get,
        now,
        Event::Located {
            call,
            sent: Now(now),
            reply,
        },
    )
}

fn call_of(steps: &[Step]) -> CallId {
    let calls: Vec<_> = steps
        .iter()
        .filter_map(|s| match s {
            Step::Locate { call, .. } => Some(*call),
            _ => None,
        })
        .collect();
    assert_eq!(calls.len(), 1, "one look-up in {steps:?}");
    calls[0]
}

fn reads_of(steps: &[Step]) -> Vec<(Ticket, u64)> {
    steps
        .iter()
        .filter_map(|s| match s {
            Step::Read { ticket, place, .. } => Some((*ticket, place.node.0)),
            _ => None,
        })
        .collect()
}

fn reports_of(steps: &[Step]) -> Vec<(u64, Fault)> {
    steps
        .iter()
        .filter_map(|s| match s {
            Step::Report { node, fault, .. } => Some((node.0, *fault)),
            _ => None,
        })
        .collect()
}

fn outcome_of(steps: &[Step], item: usize) -> Option<Result<u64, Code>> {
    steps.iter().find_map(|s| match s {
        Step::Done { item: i, outcome } if *i == item => {
            Some(outcome.as_ref().map(|g| g.len).map_err(|f| f.code))
        }
        _ => None,
    })
}

fn good() -> Result<ReadDone, Failure> {
    Ok(ReadDone {
        len: 100,
        shape: Some(shape()),
    })
}

fn fail(code: Code) -> Result<ReadDone, Failure> {
    Err(Failure::new(code, Stage::Read, "told so"))
}

fn end(get: &mut Get, now: u64, ticket: Ticket, result: Result<ReadDone, Failure>) -> Vec<Step> {
    step(get, now, Event::Read(vec![(ticket, result)]))
}

/// Starts a get of one key found with these replicas and returns the first read.
fn started(get: &mut Get, replicas: &[u16]) -> (Ticket, u64) {
    let call = call_of(&step(get, 0, Event::Start));
    let steps = answer(get, 1, call, vec![found(5, replicas)]);
    reads_of(&steps)[0]
}

#[test]
fn a_batch_is_looked_up_once_and_every_item_is_answered() {
    let mut get = plan(vec![whole("a"), whole("b"), whole("c")]);
    let steps = step(&mut get, 0, Event::Start);
    let call = call_of(&steps);
    let steps = answer(
        &mut get,
        1,
        call,
        vec![found(5, &[0]), Located::Missing, found(6, &[1])],
    );
    assert_eq!(outcome_of(&steps, 1), Some(Err(Code::ObjectNotFound)));
    let reads = reads_of(&steps);
    assert_eq!(reads.len(), 2);
    let steps = step(
        &mut get,
        2,
        Event::Read(vec![(reads[1].0, good()), (reads[0].0, good())]),
    );
    assert_eq!(outcome_of(&steps, 0), Some(Ok(100)));
    assert_eq!(outcome_of(&steps, 2), Some(Ok(100)));
    assert!(get.is_done());
}

#[test]
fn a_key_named_twice_is_looked_up_once_and_read_into_both_destinations() {
    let mut get = plan(vec![whole("a"), whole("a")]);
    let steps = step(&mut get, 0, Event::Start);
    assert!(matches!(&steps[0], Step::Locate { keys, .. } if keys.len() == 1));
    let steps = answer(&mut get, 1, call_of(&steps), vec![found(5, &[0])]);
    let reads = reads_of(&steps);
    assert_eq!(reads.len(), 2);
    end(&mut get, 2, reads[0].0, good());
    end(&mut get, 2, reads[1].0, good());
    assert!(get.is_done());
}

#[test]
fn an_unreachable_replica_is_left_for_the_next_without_a_report() {
    let mut get = plan(vec![whole("a")]);
    let (ticket, node) = started(&mut get, &[0, 1]);
    assert_eq!(node, 1);
    let steps = end(&mut get, 2, ticket, fail(Code::TransferFail));
    assert!(reports_of(&steps).is_empty());
    let (ticket, node) = reads_of(&steps)[0];
    assert_eq!(node, 2);
    assert_eq!(
        outcome_of(&end(&mut get, 3, ticket, good()), 0),
        Some(Ok(100))
    );
}

#[test]
fn a_gone_replica_is_reported_and_the_look_up_repeated_when_none_is_left() {
    let mut get = plan(vec![whole("a")]);
    let (ticket, _) = started(&mut get, &[0]);
    let steps = end(&mut get, 2, ticket, fail(Code::ReplicaGone));
    assert_eq!(reports_of(&steps), vec![(1, Fault::Gone)]);
    // A replace had switched: the new version is read, although at the same node.
    let steps = answer(&mut get, 3, call_of(&steps), vec![found(6, &[0])]);
    let (ticket, node) = reads_of(&steps)[0];
    assert_eq!(node, 1);
    assert_eq!(
        outcome_of(&end(&mut get, 4, ticket, good()), 0),
        Some(Ok(100))
    );
}

#[test]
fn a_holding_said_to_be_gone_is_never_read_again_and_look_ups_are_bounded() {
    let mut get = plan(vec![whole("a")]);
    let (ticket, _) = started(&mut get, &[0]);
    let mut steps = end(&mut get, 2, ticket, fail(Code::ReplicaGone));
    for _ in 1..LOOKUPS_MAX {
        steps = answer(&mut get, 3, call_of(&steps), vec![found(5, &[0])]);
        assert!(reads_of(&steps).is_empty());
    }
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::ReplicaGone)));
    assert!(get.is_done());
}

#[test]
fn a_replica_that_could_not_be_reached_is_tried_again_after_a_look_up() {
    let mut get = plan(vec![whole("a")]);
    let (ticket, _) = started(&mut get, &[0]);
    let steps = end(&mut get, 2, ticket, fail(Code::TransferFail));
    let steps = answer(&mut get, 3, call_of(&steps), vec![found(5, &[0])]);
    let (ticket, _) = reads_of(&steps)[0];
    let steps = end(&mut get, 4, ticket, fail(Code::TransferFail));
    let steps = answer(&mut get, 5, call_of(&steps), vec![Located::Missing]);
    // Its bytes may still be there: that is not a miss.
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::TransferFail)));
}

#[test]
fn wrong_bytes_are_reported_and_end_in_801_only_when_no_replica_is_left() {
    let mut get = plan(vec![whole("a")]);
    let (ticket, _) = started(&mut get, &[0, 1]);
    let steps = end(&mut get, 2, ticket, fail(Code::ChecksumMismatch));
    assert_eq!(reports_of(&steps), vec![(1, Fault::Bad)]);
    let (ticket, node) = reads_of(&steps)[0];
    assert_eq!(node, 2);
    // Pieces that are right in themselves, but of other bytes than the directory named.
    let other = Ok(ReadDone {
        len: 100,
        shape: Some(Shape {
            checksum: 8,
            ..shape()
        }),
    });
    let steps = end(&mut get, 3, ticket, other);
    assert_eq!(reports_of(&steps), vec![(2, Fault::Bad)]);
    let steps = answer(&mut get, 4, call_of(&steps), vec![Located::Missing]);
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::ChecksumMismatch)));
}

#[test]
fn a_cached_location_is_read_without_a_look_up() {
    let location = cached(5, &[1], 1000);
    let mut get = Get::new(
        Tenant::default(),
        vec![whole("a")],
        Now(30_000),
        None,
        |_| Some(location.clone()),
    );
    let steps = step(&mut get, 999, Event::Start);
    assert_eq!(steps.len(), 1);
    assert_eq!(reads_of(&steps).len(), 1);
}

#[test]
fn a_cached_location_past_its_lease_is_not_read() {
    let location = cached(5, &[1], 1000);
    let mut get = Get::new(
        Tenant::default(),
        vec![whole("a")],
        Now(30_000),
        None,
        |_| Some(location.clone()),
    );
    let steps = step(&mut get, 1000, Event::Start);
    assert!(reads_of(&steps).is_empty());
    call_of(&steps);
}

#[test]
fn the_next_replica_is_looked_up_anew_when_the_lease_ended_meanwhile() {
    let mut get = plan(vec![whole("a")]);
    let (ticket, _) = started(&mut get, &[0, 1]);
    let steps = end(&mut get, 1 + LEASE.0, ticket, fail(Code::TransferFail));
    assert!(reads_of(&steps).is_empty());
    call_of(&steps);
}

#[test]
fn a_location_without_a_lease_is_read_once_and_not_remembered() {
    let mut get = plan(vec![whole("a")]);
    let call = call_of(&step(&mut get, 0, Event::Start));
    let item = Located::Found {
        version: Version::from_raw(5),
        shape: shape(),
        lease: Millis(0),
        replicas: vec![Replica {
            place: 0,
            tier: Tier::Dram,
        }],
    };
    let steps = answer(&mut get, 1, call, vec![item]);
    assert_eq!(reads_of(&steps).len(), 1);
    assert!(!steps.iter().any(|s| matches!(s, Step::Learn { .. })));
}

#[test]
fn the_own_node_is_read_first() {
    let mut get = Get::new(
        Tenant::default(),
        vec![whole("a")],
        Now(30_000),
        Some(NodeId(3)),
        |_| None,
    );
    assert_eq!(started(&mut get, &[0, 1, 2]).1, 3);
}

#[test]
fn nothing_is_read_into_a_destination_that_is_too_small() {
    let mut get = plan(vec![Want::whole(key("a"), Some(99)), whole("a")]);
    let call = call_of(&step(&mut get, 0, Event::Start));
    let steps = answer(&mut get, 1, call, vec![found(5, &[0])]);
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::BufferOverflow)));
    assert_eq!(reads_of(&steps).len(), 1);
}

#[test]
fn ranges_outside_the_object_are_refused_before_any_read() {
    for (offset, len, code) in [
        (100, 1, Code::InvalidRead),
        (99, 2, Code::InvalidRead),
        (100, u64::MAX, Code::InvalidRead),
        (u64::MAX, 5, Code::InvalidRead),
    ] {
        let want = Want {
            key: key("a"),
            offset,
            len,
            room: None,
        };
        let mut get = plan(vec![want]);
        let call = call_of(&step(&mut get, 0, Event::Start));
        let steps = answer(&mut get, 1, call, vec![found(5, &[0])]);
        assert_eq!(outcome_of(&steps, 0), Some(Err(code)), "{offset} {len}");
    }
}

#[test]
fn zero_bytes_are_refused_before_anything_is_asked() {
    let want = Want {
        key: key("a"),
        offset: 0,
        len: 0,
        room: Some(0),
    };
    let mut get = plan(vec![want]);
    let steps = step(&mut get, 0, Event::Start);
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::InvalidParams)));
    assert_eq!(steps.len(), 1);
}

#[test]
fn at_the_deadline_reads_are_aborted_and_late_answers_change_nothing() {
    let mut get = plan(vec![whole("a"), whole("b")]);
    let steps = step(&mut get, 0, Event::Start);
    let steps = answer(
        &mut get,
        1,
        call_of(&steps),
        vec![found(5, &[0]), found(6, &[1])],
    );
    let reads = reads_of(&steps);
    end(&mut get, 2, reads[0].0, good());
    let steps = step(&mut get, 30_000, Event::Tick);
    assert_eq!(steps[0], Step::Abort { ticket: reads[1].0 });
    assert_eq!(outcome_of(&steps, 1), Some(Err(Code::RpcTimeout)));
    assert!(get.is_done());
    assert!(end(&mut get, 30_001, reads[1].0, good()).is_empty());
}

#[test]
fn a_failed_look_up_ends_the_items_that_waited_for_it() {
    let mut get = plan(vec![whole("a"), whole("b")]);
    let call = call_of(&step(&mut get, 0, Event::Start));
    let reply = Err(Failure::new(Code::RpcFail, Stage::Session, "refused").with_peer("m:1"));
    let event = Event::Located {
        call,
        sent: Now(0),
        reply,
    };
    let steps = step(&mut get, 1, event);
    for item in 0..2 {
        assert_eq!(outcome_of(&steps, item), Some(Err(Code::RpcFail)));
    }
    let Some(Step::Done {
        outcome: Err(failure),
        ..
    }) = steps.last()
    else {
        panic!("not failed");
    };
    assert_eq!(failure.key, Some(key("b")));
    assert_eq!(failure.peer.as_deref(), Some("m:1"));
}

#[test]
fn a_failed_look_up_after_a_gone_replica_is_the_answer() {
    for (read, told) in [
        (Code::ReplicaGone, Code::RpcTimeout),
        (Code::TransferFail, Code::TransferFail),
        (Code::ChecksumMismatch, Code::ChecksumMismatch),
    ] {
        let mut get = plan(vec![whole("a")]);
        let (ticket, _) = started(&mut get, &[0]);
        let call = call_of(&end(&mut get, 2, ticket, fail(read)));
        let late = Failure::new(Code::RpcTimeout, Stage::Locate, "no answer in time");
        let event = Event::Located {
            call,
            sent: Now(2),
            reply: Err(late),
        };
        let steps = step(&mut get, 5_002, event);
        assert_eq!(outcome_of(&steps, 0), Some(Err(told)), "{read:?}");
        assert!(get.is_done());
    }
}

#[test]
fn failures_that_end_together_share_one_look_up() {
    let wants = (0..50).map(|i| whole(&format!("k{i}"))).collect();
    let mut get = plan(wants);
    let call = call_of(&step(&mut get, 0, Event::Start));
    let steps = answer(&mut get, 1, call, vec![found(5, &[0]); 50]);
    let ended = reads_of(&steps)
        .into_iter()
        .map(|(t, _)| (t, fail(Code::TransferFail)))
        .collect();
    let steps = step(&mut get, 2, Event::Read(ended));
    assert!(matches!(&steps[..], [Step::Locate { keys, .. }] if keys.len() == 50));
}

#[test]
fn short_and_ill_formed_answers_are_failures_not_bytes() {
    let mut get = plan(vec![whole("a"), whole("b")]);
    let call = call_of(&step(&mut get, 0, Event::Start));
    let steps = answer(&mut get, 1, call, vec![found(5, &[9])]);
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::Internal)));
    assert_eq!(outcome_of(&steps, 1), Some(Err(Code::Internal)));

    let mut get = plan(vec![whole("a")]);
    let (ticket, _) = started(&mut get, &[0, 1]);
    let short = Ok(ReadDone {
        len: 60,
        shape: None,
    });
    let steps = end(&mut get, 2, ticket, short);
    assert_eq!(reads_of(&steps)[0].1, 2, "the next replica is tried");
}
