use super::*;
use snowskin_directory::config::Config;
use snowskin_directory::effect::{Counter, Restored};
use snowskin_types::call::{Existing, Keys, Removed, Reserve};
use snowskin_types::id::ClientId;
use snowskin_types::{Key, Tenant};
use std::time::Duration;

fn hub() -> Arc<Hub> {
    let restored = Restored {
        cluster: ClusterId(1),
        term: Term(3),
        nodes: vec![],
    };
    let (core, first) = Directory::new(SystemClock.now(), Config::default(), restored);
    let hub = Hub::new(ClusterId(1), Term(3), core, first);
    hub.begin(None);
    hub
}

fn keys() -> Keys {
    [Key::new(b"k").unwrap()].iter().collect()
}

fn call(hub: &Hub, request: Request) -> Reply {
    hub.call(request, Instant::now() + Duration::from_secs(5))
}

fn put(mode: PutMode) -> Request {
    Request::Reserve {
        client: ClientId(1),
        tenant: Tenant::default(),
        keys: keys(),
        items: vec![Reserve {
            size: 1,
            mode,
            replicas: 1,
            ..Reserve::default()
        }],
    }
}

fn remove() -> Request {
    Request::Remove {
        tenant: Tenant::default(),
        keys: keys(),
        force: true,
    }
}

#[test]
fn after_a_failed_durable_write_changes_are_refused_and_reads_go_on() {
    let hub = hub();
    let absent = |reply: Reply| match reply {
        Reply::Removed(items) => {
            matches!(&items[..], [Removed::Err(f)] if f.code == Code::ObjectNotFound)
        }
        _ => false,
    };
    assert!(absent(call(&hub, remove())));
    hub.persisted(&[PersistId(99)], false);
    let all = Request::RemoveMany {
        tenant: None,
        filter: snowskin_types::call::Filter::All,
        force: true,
    };
    for request in [remove(), all, put(PutMode::Replace)] {
        match call(&hub, request) {
            Reply::Failed(failure) => assert_eq!(failure.code, Code::PersistentFail),
            other => panic!("{other:?}"),
        }
    }
    let exists = Request::Exists {
        tenant: Tenant::default(),
        keys: keys(),
        lease: None,
    };
    assert_eq!(call(&hub, exists), Reply::Exists(vec![Existing::No]));
    // A put of a new key changes nothing that was durable: it fails here only for want of nodes.
    let reply = call(&hub, put(PutMode::IfAbsent));
    assert!(matches!(reply, Reply::Reserved { .. }), "{reply:?}");
    let figures = hub.figures();
    assert!(figures.poisoned);
    assert_eq!(figures.ledger.of(Counter::ReserveFailed), 1);
    assert_eq!(hub.tally.persist_failed.load(Ordering::Relaxed), 1);
}

#[test]
fn deadlines_of_answered_requests_do_not_pile_up() {
    let hub = hub();
    for n in 0..3 * DEADLINES_SLACK as u64 {
        let mut inner = hub.inner.lock();
        inner.deadlines.push(Reverse((Now(n), RequestId(n))));
        hub.settle(&mut inner);
        assert!(inner.deadlines.len() <= DEADLINES_SLACK + 1);
    }
}

#[test]
fn a_closed_hub_answers_and_keeps_nothing() {
    let hub = hub();
    hub.close();
    match call(&hub, remove()) {
        Reply::Failed(failure) => assert_eq!(failure.code, Code::UnavailableInStatus),
        other => panic!("{other:?}"),
    }
    assert_eq!(hub.figures().under_way, 0);
    assert!(!hub.ready());
}
