use crate::peer::*;
use snowskin_master::{Config, Master};
use snowskin_types::Code;
use snowskin_types::call::{Existing, PutMode, Reply};
use snowskin_types::id::{Seq, Session};
use snowskin_types::link::{FromNode, ItemResult, NodeItem, ToNode};
use std::time::{Duration, Instant};

fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

#[test]
fn a_node_and_callers_of_the_same_process_need_no_socket() {
    let master = Master::embedded(&Config::default()).unwrap();
    assert!(master.rpc().is_none() && master.http().is_none());
    let handle = master.handle();
    assert!(handle.ready());
    let (link, mut messages) = handle.node_link(64);
    link.send(FromNode::Register(register(
        "inside:0",
        1,
        Session::default(),
    )))
    .unwrap();
    let session = match messages.blocking_recv().unwrap() {
        ToNode::Registered { session, .. } => session,
        other => panic!("{other:?}"),
    };
    let mut seq = 0;
    let mut tell = |items| {
        seq += 1;
        link.send(FromNode::Batch {
            session,
            seq: Seq(seq),
            items,
        })
        .unwrap();
        loop {
            match messages.blocking_recv().unwrap() {
                ToNode::Ack { results, .. } => return results,
                ToNode::Ping { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    };
    tell(vec![NodeItem::InventoryEnd]);
    let version = placed(handle.call(reserve(&["a"], 8, PutMode::IfAbsent), deadline()))[0];
    assert_eq!(
        tell(vec![publish("a", version, 8, false)]),
        [(0, ItemResult::Ok)]
    );
    // Callers of many threads at once.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let reply = handle.call(exists(&["a", "b"]), deadline());
                    let Reply::Exists(items) = reply else {
                        panic!("{reply:?}")
                    };
                    assert!(matches!(items[..], [Existing::Yes { .. }, Existing::No]));
                }
            });
        }
    });
    master.shutdown().unwrap();
    let Reply::Failed(failure) = handle.call(exists(&["a"]), deadline()) else {
        panic!()
    };
    assert_eq!(failure.code, Code::UnavailableInStatus);
    assert!(
        link.send(FromNode::Register(register("inside:0", 1, session)))
            .is_err()
    );
}

#[test]
fn a_call_ends_at_its_deadline_and_a_full_queue_ends_the_link() {
    let master = Master::embedded(&Config::default()).unwrap();
    let handle = master.handle();
    let (link, mut messages) = handle.node_link(4);
    link.send(FromNode::Register(register(
        "inside:1",
        1,
        Session::default(),
    )))
    .unwrap();
    let Some(ToNode::Registered { session, .. }) = messages.blocking_recv() else {
        panic!()
    };
    let items = vec![NodeItem::InventoryEnd];
    link.send(FromNode::Batch {
        session,
        seq: Seq(1),
        items,
    })
    .unwrap();
    let version = placed(handle.call(reserve(&["a"], 8, PutMode::IfAbsent), deadline()))[0];
    let items = vec![publish("a", version, 8, false)];
    link.send(FromNode::Batch {
        session,
        seq: Seq(2),
        items,
    })
    .unwrap();
    // The owner does not answer the order to retire.
    let begun = Instant::now();
    let reply = handle.call(remove(&["a"], true), begun + Duration::from_millis(60));
    assert!(matches!(reply, Reply::Failed(f) if f.code == Code::RpcTimeout));
    assert!(
        begun.elapsed() < Duration::from_millis(60 + 250),
        "{:?}",
        begun.elapsed()
    );
    // A task's deadline is kept by the master's own clock, and counted.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let again = remove(&["a"], true);
    let reply = runtime.block_on(handle.ask(again, Duration::from_millis(60)));
    assert!(matches!(reply, Reply::Failed(f) if f.code == Code::RpcTimeout));
    // It takes nothing more, so its queue fills with pings and the link ends.
    while !link_ended(&link, session) {}
    while messages.blocking_recv().is_some() {}
    master.shutdown().unwrap();
}

fn link_ended(link: &snowskin_master::NodeLink, session: Session) -> bool {
    // Each of these is answered with an ack.
    let items = vec![NodeItem::InventoryEnd];
    static SEQ: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(10);
    let seq = Seq(SEQ.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    link.send(FromNode::Batch {
        session,
        seq,
        items,
    })
    .is_err()
}
