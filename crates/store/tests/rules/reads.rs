//! What is served, and the pins of reads.

use crate::harness::*;
use snowskin_store::effect::{Counter, Effect};
use snowskin_store::event::Event;
use snowskin_types::id::Epoch;
use snowskin_types::link::{Stamp, ToNode};
use snowskin_types::time::Millis;

fn retire(b: &mut Bench, key: &str, n: u64) {
    let (session, items) = (b.session, vec![(name(key), v(n))]);
    b.master(ToNode::Retire { session, items });
}

#[test]
fn exactly_the_asked_version_is_served() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), 10_000);
    b.put("a", v(2), 20_000);
    for (n, size) in [(1, 10_000), (2, 20_000)] {
        let read = b.serve("a", v(n));
        let grant = b.serves[&read].clone().unwrap();
        assert_eq!((grant.shape.size, grant.offset, grant.len), (size, 0, size));
    }
    assert_eq!(b.read_code(read_of("a", v(3))), -712);
    assert_eq!(b.read_code(read_of("b", v(1))), -712);
    let mut request = read_of("a", v(1));
    request.epoch = Epoch(1);
    assert_eq!(b.read_code(request), -712);
}

#[test]
fn ranges_are_cut_to_the_object_and_refused_outside_of_it() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), 10_000);
    for (offset, len, served) in [(9_999, u64::MAX, 1), (5_000, 100, 100), (0, 20_000, 10_000)] {
        let mut request = read_of("a", v(1));
        (request.offset, request.len) = (offset, len);
        let read = b.start_read(request);
        let grant = b.serves[&read].clone().unwrap();
        assert_eq!((grant.offset, grant.len), (offset, served));
        assert_eq!(grant.extents.iter().map(|e| e.len).sum::<u64>(), 10_000);
    }
    for (offset, len, code) in [(10_000, 1, -701), (u64::MAX, 1, -701), (0, 0, -600)] {
        let mut request = read_of("a", v(1));
        (request.offset, request.len) = (offset, len);
        assert_eq!(b.read_code(request), code);
    }
}

#[test]
fn retired_bytes_are_reclaimed_when_the_last_read_ends() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), 64 * KIB);
    let (first, second) = (b.serve("a", v(1)), b.serve("a", v(1)));
    assert_eq!(b.store.usage().pinned, 64 * KIB);
    retire(&mut b, "a", 1);
    assert_eq!(
        b.ack_all().iter().filter_map(absent).collect::<Vec<_>>(),
        [v(1)]
    );
    assert_eq!(b.read_code(read_of("a", v(1))), -712, "no new read");
    b.end_read(first);
    assert_eq!(b.used(), 64 * KIB);
    let write = b.start_write(write_of("b", v(2), KIB));
    assert!(!b.grants.contains_key(&write));
    b.end_read(second);
    assert!(b.grants.contains_key(&write));
    assert_eq!(b.used(), 4 * KIB);
}

#[test]
fn a_read_without_progress_is_cut_and_its_bytes_stay_until_it_has_ended() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), 64 * KIB);
    let (slow, stuck) = (b.serve("a", v(1)), b.serve("a", v(1)));
    b.pass(9_000);
    b.feed(Event::ReadProgress { read: slow });
    b.pass(1_000);
    let cuts = |b: &Bench| {
        let cut = |e: &Effect| match e {
            Effect::CutRead { read } => Some(*read),
            _ => None,
        };
        b.others.iter().filter_map(cut).collect::<Vec<_>>()
    };
    assert_eq!(cuts(&b), [stuck]);
    retire(&mut b, "a", 1);
    b.pass(9_000);
    assert_eq!(cuts(&b), [stuck, slow], "each is cut once");
    assert_eq!((b.used(), b.count(Counter::PinsCut)), (64 * KIB, 2));
    b.end_read(stuck);
    b.end_read(slow);
    b.end_read(slow);
    assert_eq!((b.used(), b.store.usage().reads), (0, 0));
}

#[test]
fn nothing_is_served_or_taken_once_the_serving_lease_is_over() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    let until = b.store.serving_until();
    assert!(b.others.contains(&Effect::ServeUntil(until)));
    b.silence(b.now.until(until).0 - 1);
    assert_eq!(b.read_code(read_of("a", v(1))), 0);
    let (session, confirmed) = (b.session, Stamp(b.now.0 - 1_000));
    b.master(ToNode::Ping {
        session,
        nonce: 1,
        confirmed,
    });
    let longer = b.store.serving_until();
    assert_eq!(longer, b.now + Millis(4_000), "from the confirmed moment");
    assert!(b.others.contains(&Effect::ServeUntil(longer)));
    b.silence(4_000);
    assert_eq!(b.read_code(read_of("a", v(1))), -1010);
    let write = b.start_write(write_of("b", v(2), KIB));
    assert_eq!(b.code(write), -1010);
    assert_eq!(b.count(Counter::NotServing), 2);
    let confirmed = Stamp(b.now.0);
    b.master(ToNode::Ping {
        session,
        nonce: 2,
        confirmed,
    });
    assert_eq!(
        b.read_code(read_of("a", v(1))),
        0,
        "it served nothing else meanwhile"
    );
}

#[test]
fn an_older_or_made_up_confirmation_does_not_move_the_serving_lease() {
    let mut b = Bench::new(64 * KIB);
    let until = b.store.serving_until();
    let session = b.session;
    for confirmed in [Stamp(0), Stamp(b.now.0 + 1)] {
        b.master(ToNode::Ping {
            session,
            nonce: 1,
            confirmed,
        });
        assert_eq!(b.store.serving_until(), until);
    }
    assert_eq!(b.pongs.len(), 2);
}

#[test]
fn a_write_that_waits_past_the_serving_lease_is_not_granted() {
    let mut b = Bench::new(64 * KIB);
    let big = b.start_write(write_of("big", v(1), 64 * KIB));
    b.silence(4_900);
    let write = b.start_write(write_of("a", v(2), KIB));
    b.silence(100);
    b.end_write(big, snowskin_store::event::Filled::Broken);
    assert_eq!(b.code(write), -1010);
}
