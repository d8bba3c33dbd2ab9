//! Admission and the end of writes.

use crate::harness::*;
use snowskin_store::effect::{Counter, Effect};
use snowskin_store::event::{Event, Filled};
use snowskin_types::id::{Epoch, Term};
use snowskin_types::link::{ItemResult, NodeItem, ToNode};
use snowskin_types::object::Attributes;
use snowskin_types::time::Millis;
use snowskin_types::version::Version;

#[test]
fn a_write_is_answered_when_its_publish_is_accepted_and_not_before() {
    let mut b = Bench::new(64 * KIB);
    let write = b.start_write(write_of("a", v(1), 10_000));
    assert_eq!(b.grants[&write].iter().map(|e| e.1).sum::<u64>(), 10_000);
    assert!(b.items().is_empty(), "nothing is told before the commit");
    assert_eq!(b.read_code(read_of("a", v(1))), -712);
    b.end_write(write, Filled::Sound);
    assert_eq!(b.read_code(read_of("a", v(1))), 0, "committed, so served");
    assert!(b.answers.is_empty());
    let items = b.ack_all();
    assert_eq!(
        items.iter().filter_map(published).collect::<Vec<_>>(),
        [v(1)]
    );
    assert_eq!(b.answers[&write], Ok(()));
    assert_eq!(b.count(Counter::WritesAcked), 1);
}

#[test]
fn a_write_of_another_epoch_or_term_is_refused() {
    let mut b = Bench::new(64 * KIB);
    let mut request = write_of("a", v(1), 10);
    request.epoch = Epoch(1);
    let write = b.start_write(request);
    assert_eq!(b.code(write), -712);
    for term in [0, 2] {
        let version = Version::new(Term(term), 1).unwrap();
        let write = b.start_write(write_of("a", version, 10));
        assert_eq!(b.code(write), -700);
    }
    assert!(b.items().is_empty());
}

#[test]
fn size_zero_and_sizes_that_never_fit_are_refused_at_once_with_the_largest() {
    let mut b = Bench::new(64 * KIB);
    b.put("old", v(1), 60 * KIB);
    for (n, size) in [(2, 0), (3, 64 * KIB + 1), (4, u64::MAX)] {
        let mut request = write_of("a", v(n), size.min(KIB));
        request.size = size;
        let write = b.start_write(request);
        assert_eq!(b.code(write), -600);
        let detail = b.answers[&write].clone().unwrap_err().detail.unwrap();
        assert_eq!((detail.largest, detail.wanted), (64 * KIB, size));
        let items = b.ack_all();
        assert_eq!(items.iter().filter_map(absent).collect::<Vec<_>>(), [v(n)]);
        assert_eq!(
            items.iter().filter_map(retracted).count(),
            0,
            "evicts nothing"
        );
    }
    assert!(b.store.serves(&name("old"), v(1)));
}

#[test]
fn piece_checksums_must_be_complete() {
    let mut b = Bench::new(64 * KIB);
    let mut request = write_of("a", v(1), 10);
    request.sums.0 = Box::new([1, 2]);
    let write = b.start_write(request);
    assert_eq!(b.code(write), -600);
}

#[test]
fn a_second_write_of_a_version_is_answered_as_the_first() {
    let mut b = Bench::new(64 * KIB);
    let first = b.start_write(write_of("a", v(1), 100));
    let second = b.start_write(write_of("a", v(1), 100));
    b.end_write(first, Filled::Sound);
    let third = b.start_write(write_of("a", v(1), 100));
    assert!(b.answers.is_empty());
    b.ack_all();
    let fourth = b.start_write(write_of("a", v(1), 100));
    for write in [first, second, third, fourth] {
        assert_eq!(b.answers[&write], Ok(()));
    }
    assert_eq!(b.grants.len(), 1);
    let other = b.start_write(write_of("a", v(1), 101));
    assert_eq!(b.code(other), -700, "same version, other bytes");
}

#[test]
fn a_second_write_fails_with_the_first() {
    let mut b = Bench::new(64 * KIB);
    let first = b.start_write(write_of("a", v(1), 100));
    let second = b.start_write(write_of("a", v(1), 100));
    b.end_write(first, Filled::Corrupt);
    assert_eq!((b.code(first), b.code(second)), (-801, -801));
    let third = b.start_write(write_of("a", v(1), 100));
    assert_eq!(b.code(third), -700, "one-shot");
    assert_eq!(b.count(Counter::OneShotRefused), 1);
}

#[test]
fn a_broken_or_corrupt_write_gives_its_bytes_back_and_tells_absent() {
    let mut b = Bench::new(64 * KIB);
    for (n, filled) in [(1, Filled::Broken), (2, Filled::Corrupt)] {
        let write = b.start_write(write_of("a", v(n), 30_000));
        assert_eq!(b.store.usage().unfinished, 32 * KIB);
        b.end_write(write, filled);
        assert_eq!((b.used(), b.store.usage().unfinished), (0, 0));
        assert_eq!(b.answers.contains_key(&write), filled == Filled::Corrupt);
        let items = b.ack_all();
        assert_eq!(items.iter().filter_map(absent).collect::<Vec<_>>(), [v(n)]);
    }
}

#[test]
fn a_full_store_lets_writes_wait_and_then_refuses_them_with_the_split() {
    let mut b = Bench::new(64 * KIB);
    let mut pinned = write_of("pinned", v(1), 32 * KIB);
    pinned.attributes.hard_pin = true;
    b.commit_as(pinned);
    b.ack_all();
    let unfinished = b.start_write(write_of("unfinished", v(2), 16 * KIB));
    b.put("leased", v(3), 16 * KIB);
    let write = b.start_write(write_of("a", v(4), 16 * KIB));
    b.ack_with(|_| ItemResult::Leased(Millis(60_000)));
    b.pass(499);
    assert!(!b.answers.contains_key(&write));
    b.pass(1);
    assert_eq!(b.code(write), -200);
    let detail = b.answers[&write].clone().unwrap_err().detail.unwrap();
    assert_eq!(
        (
            detail.wanted,
            detail.free,
            detail.leased,
            detail.pinned,
            detail.unfinished
        ),
        (16 * KIB, 0, 16 * KIB, 32 * KIB, 16 * KIB)
    );
    assert_eq!(
        (b.count(Counter::PutWaited), b.count(Counter::PutWaitFailed)),
        (1, 1)
    );
    assert!(b.items().iter().filter_map(absent).any(|gone| gone == v(4)));
    b.end_write(unfinished, Filled::Sound);
}

#[test]
fn a_write_waits_no_longer_than_its_patience() {
    let mut b = Bench::new(64 * KIB);
    b.start_write(write_of("a", v(1), 64 * KIB));
    let mut request = write_of("b", v(2), KIB);
    request.patience = Millis(30);
    let write = b.start_write(request);
    assert_eq!(b.store.next_deadline(), b.now + Millis(30));
    b.pass(29);
    assert!(!b.answers.contains_key(&write));
    b.pass(1);
    assert_eq!(b.code(write), -200);
}

#[test]
fn waiting_writes_are_served_in_the_order_of_arrival() {
    let mut b = Bench::new(64 * KIB);
    let big = b.start_write(write_of("big", v(1), 64 * KIB));
    let first = b.start_write(write_of("first", v(2), 60 * KIB));
    let second = b.start_write(write_of("second", v(3), 4 * KIB));
    let third = b.start_write(write_of("third", v(4), 60 * KIB));
    b.end_write(big, Filled::Broken);
    assert!(b.grants.contains_key(&first) && b.grants.contains_key(&second));
    assert!(!b.grants.contains_key(&third));
    let small = b.start_write(write_of("small", v(5), 1));
    assert!(!b.grants.contains_key(&small), "the queue is not overtaken");
}

#[test]
fn a_waiting_writer_that_goes_leaves_its_place_to_another_of_its_version() {
    let mut b = Bench::new(64 * KIB);
    let big = b.start_write(write_of("big", v(1), 64 * KIB));
    let first = b.start_write(write_of("a", v(2), KIB));
    let second = b.start_write(write_of("a", v(2), KIB));
    let alone = b.start_write(write_of("b", v(3), KIB));
    b.feed(Event::WriterGone { write: first });
    b.feed(Event::WriterGone { write: alone });
    assert_eq!(
        b.ack_all().iter().filter_map(absent).collect::<Vec<_>>(),
        [v(3)]
    );
    b.end_write(big, Filled::Broken);
    assert!(b.grants.contains_key(&second) && !b.grants.contains_key(&first));
    b.end_write(second, Filled::Sound);
    b.ack_all();
    assert_eq!(b.answers[&second], Ok(()));
}

#[test]
fn a_writer_that_goes_before_the_publish_does_not_undo_it() {
    let mut b = Bench::new(64 * KIB);
    let write = b.commit("a", v(1), KIB);
    b.feed(Event::WriterGone { write });
    b.ack_all();
    assert!(b.answers.is_empty());
    assert!(b.store.serves(&name("a"), v(1)));
}

#[test]
fn a_write_that_began_under_a_former_term_is_refused_at_its_end() {
    let mut b = Bench::new(64 * KIB);
    let write = b.start_write(write_of("a", v(1), 32 * KIB));
    b.commit("big", v(2), 32 * KIB);
    let waiting = b.start_write(write_of("b", v(3), KIB));
    b.lose_link();
    b.register(2);
    b.end_write(write, Filled::Sound);
    assert_eq!((b.code(write), b.code(waiting)), (-700, -700));
    let gone: Vec<_> = b.ack_all().iter().filter_map(absent).collect();
    assert_eq!(gone.len(), 2);
    assert_eq!(b.read_code(read_of("a", v(1))), -712);
}

#[test]
fn an_object_in_a_fragmented_segment_gets_several_extents() {
    let mut b = Bench::new(1024 * KIB);
    for n in 0..8u64 {
        b.put(&n.to_string(), v(n + 1), 120 * KIB);
    }
    for n in [1, 3, 5] {
        let items = vec![(name(&n.to_string()), v(n + 1))];
        let session = b.session;
        b.master(ToNode::Retire { session, items });
    }
    b.ack_all();
    let write = b.commit("whole", v(20), 300 * KIB);
    let extents = &b.grants[&write];
    assert!(extents.len() > 1, "{extents:?}");
    assert_eq!(extents.iter().map(|e| e.1).sum::<u64>(), 300 * KIB);
    let read = b.serve("whole", v(20));
    let grant = b.serves[&read].clone().unwrap();
    let same: Vec<_> = grant.extents.iter().map(|e| (e.offset, e.len)).collect();
    assert_eq!(&same, &b.grants[&write]);
}

#[test]
fn attributes_and_shape_are_told_with_the_publish() {
    let mut b = Bench::new(64 * KIB);
    let mut request = write_of("a", v(1), KIB);
    request.attributes = Attributes {
        hard_pin: false,
        soft_pin: Some(Millis(1_000)),
        group: Some("g".into()),
        data_type: 7,
    };
    let checksum = request.sums.whole(KIB);
    b.commit_as(request.clone());
    b.ack_all();
    b.pass(300);
    b.lose_link();
    b.register(1);
    let items = b.items();
    let Some(NodeItem::Publish {
        shape,
        attributes,
        acked,
        inventory,
        ..
    }) = items.first()
    else {
        panic!("{items:?}");
    };
    assert_eq!((shape.size, shape.checksum), (KIB, checksum));
    assert_eq!(attributes.soft_pin, Some(Millis(700)), "the time left");
    assert_eq!(
        (attributes.group.as_deref(), attributes.data_type),
        (Some("g"), 7)
    );
    assert!(acked & inventory);
}

#[test]
fn a_write_retired_under_way_is_cut_and_its_bytes_stay_until_its_io_has_ended() {
    let mut b = Bench::new(64 * KIB);
    let write = b.start_write(write_of("a", v(1), 64 * KIB));
    let waiting = b.start_write(write_of("b", v(2), 64 * KIB));
    let session = b.session;
    b.master(ToNode::Retire {
        session,
        items: vec![(name("a"), v(1))],
    });
    assert!(b.others.contains(&Effect::CutWrite { write }));
    assert_eq!(
        b.ack_all().iter().filter_map(absent).collect::<Vec<_>>(),
        [v(1)]
    );
    assert_eq!(b.used(), 64 * KIB);
    assert!(!b.grants.contains_key(&waiting));
    b.end_write(write, Filled::Sound);
    assert_eq!(b.code(write), -700);
    assert!(b.grants.contains_key(&waiting));
    let again = b.start_write(write_of("a", v(1), 64 * KIB));
    assert_eq!(b.code(again), -700);
}
