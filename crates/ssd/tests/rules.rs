//! One test per rule of order.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod rig;

use rig::disk::{Change, Cut};
use rig::{BUCKET, LIMIT, Rig, Told, incarnation};
use snowskin_ssd::effect::{AppendError, Counter, State};
use snowskin_ssd::event::{Event, Fault, Fetched};

fn kinds(rig: &Rig) -> Vec<&'static str> {
    let kind = |p: &rig::disk::Pending| match p.change {
        Change::Create { .. } => "create",
        Change::Write { .. } => "write",
        Change::Sync { .. } => "sync",
        Change::Delete => "delete",
    };
    rig.pending.iter().map(kind).collect()
}

/// Fills the slot with `count` objects of half a bucket.
fn fill(rig: &mut Rig, count: u64) {
    for n in 0..count {
        rig.append(&incarnation(&format!("fill{n}"), 1_000 + n), 480 << 10);
        rig.run();
    }
}

#[test]
fn index_follows_the_complete_record() {
    let mut rig = Rig::new(1);
    let id = incarnation("a", 1);
    rig.append(&id, 5_000);
    rig.complete(0);
    assert_eq!(kinds(&rig), ["write", "write"], "header and record");
    assert!(!rig.log.holds(&id), "its write has not ended");
    rig.read(&id, 0, 10);
    assert_eq!(rig.told.pop(), Some(Told::Read(id.clone(), None)));
    rig.complete(1);
    assert_eq!(rig.told.pop(), Some(Told::Appended(id.clone(), Ok(()))));
    assert!(rig.log.holds(&id));
}

#[test]
fn record_commits_without_a_full_bucket_or_a_sync() {
    let mut rig = Rig::new(1);
    let id = incarnation("a", 1);
    rig.append(&id, 1);
    while !rig.pending.is_empty() {
        assert!(!kinds(&rig).contains(&"sync"));
        rig.complete(0);
    }
    assert!(rig.oracle.committed.contains(&id));
    rig.cut(Cut::Kill);
    assert!(rig.log.holds(&id));
}

#[test]
fn have_it_already_is_by_version() {
    let mut rig = Rig::new(1);
    let (old, new) = (incarnation("a", 1), incarnation("a", 2));
    rig.append(&old, 100);
    rig.run();
    rig.append(&old, 100);
    assert!(rig.pending.is_empty(), "the same version is there");
    rig.append(&new, 200);
    rig.run();
    assert!(rig.log.holds(&old) && rig.log.holds(&new));
    rig.cut(Cut::Kill);
    assert!(
        !rig.log.holds(&old) && rig.log.holds(&new),
        "the newest wins"
    );
    rig.run();
    rig.remove(&new);
    rig.run();
    rig.cut(Cut::Power);
    assert!(
        rig.held().is_empty(),
        "what was outdated does not come back"
    );
}

#[test]
fn removal_is_answered_when_its_tombstone_is_synced() {
    let mut rig = Rig::new(1);
    let id = incarnation("a", 1);
    rig.append(&id, 100);
    rig.run();
    rig.told.clear();
    rig.remove(&id);
    assert!(!rig.log.holds(&id), "not served from now on");
    assert!(rig.pending.is_empty(), "waits for others to share its sync");
    rig.tick(5);
    assert_eq!(kinds(&rig), ["write"]);
    rig.complete(0);
    assert_eq!(kinds(&rig), ["sync"]);
    assert!(rig.told.is_empty());
    rig.complete(0);
    assert_eq!(rig.told, [Told::Removed(id.clone())]);
    rig.append(&id, 100);
    let refused = Told::Appended(id, Err(AppendError::Retired));
    assert_eq!(rig.told.pop(), Some(refused));
}

#[test]
fn removals_share_a_write_and_a_sync() {
    let mut rig = Rig::new(1);
    for n in 0..40 {
        rig.append(&incarnation(&format!("k{n}"), n + 1), 10);
    }
    rig.run();
    for n in 0..40 {
        rig.remove(&incarnation(&format!("k{n}"), n + 1));
    }
    rig.run();
    assert_eq!(rig.counts.get(&Counter::TombstoneGroups), Some(&1));
    assert_eq!(rig.counts.get(&Counter::Tombstones), Some(&40));
}

#[test]
fn removal_during_a_write_wins() {
    let mut rig = Rig::new(1);
    let id = incarnation("a", 1);
    rig.append(&id, 100);
    rig.complete(0);
    rig.remove(&id);
    rig.run();
    let refused = Told::Appended(id.clone(), Err(AppendError::Retired));
    assert!(rig.told.contains(&refused));
    assert!(rig.told.contains(&Told::Removed(id)));
    rig.cut(Cut::Kill);
    assert!(rig.held().is_empty());
}

#[test]
fn tombstone_stays_while_an_older_bucket_may_hold_the_version() {
    let mut rig = Rig::new(1);
    rig.keep_share = None;
    let id = incarnation("a", 1);
    rig.append(&id, 100);
    rig.run();
    fill(&mut rig, 2);
    rig.remove(&id);
    rig.run();
    // Everything is kept but what is dead: buckets go one by one, the first one included.
    let mut freed = 0;
    let mut n = 0;
    while freed < 20 {
        rig.append(&incarnation(&format!("more{n}"), 5_000 + n), 400 << 10);
        n += 1;
        rig.run();
        for told in std::mem::take(&mut rig.told) {
            match told {
                Told::Victim(bucket, objects) => rig.verdict(bucket, &objects, Vec::new()),
                Told::Freed(..) => freed += 1,
                _ => {}
            }
        }
        rig.run();
        assert!(!rig.log.holds(&id));
        let found = rig::recover(&rig.disk);
        let copies = found.buckets.iter().flat_map(|b| &b.objects);
        let copies = copies.filter(|(_, o)| o.name == id.name).count();
        let stones = found.buckets.iter().flat_map(|b| &b.tombstones).count();
        assert!(copies == 0 || stones > 0, "a copy without its tombstone");
    }
}

#[test]
fn bucket_goes_only_after_the_verdict_and_the_last_reader() {
    let mut rig = Rig::new(1);
    rig.keep_share = None;
    let first = incarnation("fill0", 1_000);
    let mut n = 0;
    let victim = loop {
        rig.append(&incarnation(&format!("fill{n}"), 1_000 + n), 480 << 10);
        n += 1;
        rig.run_changes();
        let victim = rig.told.iter().find_map(|told| match told {
            Told::Victim(bucket, objects) => Some((*bucket, objects.clone())),
            _ => None,
        });
        if let Some(victim) = victim {
            break victim;
        }
    };
    assert!(victim.1.contains(&first));
    rig.read(&first, 0, 100);
    rig.run_changes();
    assert!(rig.disk.files.contains_key(&victim.0), "no verdict");
    rig.verdict(victim.0, &victim.1, Vec::new());
    rig.run_changes();
    assert!(rig.disk.files.contains_key(&victim.0), "still read");
    assert!(!rig.log.holds(&first), "new readers are refused");
    rig.complete_fetch(0);
    assert_eq!(kinds(&rig), ["delete"]);
    rig.complete(0);
    assert!(matches!(rig.told.last(), Some(Told::Freed(bucket, _)) if *bucket == victim.0));
}

#[test]
fn kept_records_are_written_anew_under_their_version_before_their_bucket_goes() {
    let mut rig = Rig::new(1);
    rig.keep_share = Some(1.0);
    fill(&mut rig, 30);
    assert!(rig.counts.get(&Counter::Reinserted) >= Some(&2));
    // Where all is kept nothing is won, so the next bucket waits.
    assert_eq!(rig.counts.get(&Counter::BucketsFreed), Some(&1));
    rig.tick(1_000);
    rig.run();
    assert_eq!(rig.counts.get(&Counter::BucketsFreed), Some(&2));
    let mut appended = rig.told.iter().filter_map(|t| match t {
        Told::Appended(id, Ok(())) => Some(id.clone()),
        _ => None,
    });
    assert!(appended.all(|id| rig.log.holds(&id)), "all is kept");
    assert!(rig.disk.used() <= LIMIT + BUCKET);
}

#[test]
fn space_is_never_above_the_limit_and_one_bucket() {
    for keep in [0.0, 0.5, 0.9] {
        let mut rig = Rig::new(3);
        rig.keep_share = Some(keep);
        // `Rig::event` asserts it after every event.
        for n in 0..60 {
            rig.append(&incarnation(&format!("fill{n}"), 1_000 + n), 480 << 10);
            rig.run();
            rig.tick(1_000);
            rig.run();
        }
        assert!(rig.counts.get(&Counter::BucketsFreed) > Some(&10), "{keep}");
    }
}

#[test]
fn full_disk_stops_writes_and_not_reads_and_ends_by_itself() {
    let mut rig = Rig::new(1);
    let id = incarnation("a", 1);
    rig.append(&id, 100);
    rig.run();
    for fault in [Fault::NoSpace, Fault::Io, Fault::ReadOnly] {
        rig.told.clear();
        rig.fault = Some(fault);
        let lost = incarnation("b", 2);
        rig.append(&lost, 100);
        rig.run();
        let failed = Told::Appended(lost.clone(), Err(AppendError::Failed(fault)));
        assert_eq!(rig.told, [failed, Told::State(State::Degraded)]);
        rig.read(&id, 0, 100);
        rig.run();
        assert!(matches!(rig.told.last(), Some(Told::Read(_, Some(_)))));
        rig.append(&lost, 100);
        let refused = AppendError::NotWriting(State::Degraded);
        assert_eq!(rig.told.pop(), Some(Told::Appended(lost, Err(refused))));
        rig.tick(1_000);
        rig.run();
        assert_eq!(rig.log.state(), State::Degraded, "the probe failed");
        rig.fault = None;
        rig.tick(30_000);
        rig.run();
        assert_eq!(rig.told.last(), Some(&Told::State(State::Ok)));
    }
}

#[test]
fn little_free_space_stops_writes_until_there_is_more() {
    let mut rig = Rig::new(1);
    let (total, space) = (1_000, |free| Event::Space { free, total: 1_000 });
    rig.event(space(total / 20));
    assert_eq!(rig.log.state(), State::Ok);
    rig.event(space(49));
    assert_eq!(rig.log.state(), State::Degraded);
    rig.event(space(55));
    assert_eq!(rig.log.state(), State::Degraded, "no flutter");
    rig.event(space(60));
    assert_eq!(rig.log.state(), State::Ok);
}

#[test]
fn hanging_disk_is_quarantined_and_comes_back() {
    let mut rig = Rig::new(1);
    let (a, b) = (incarnation("a", 1), incarnation("b", 2));
    rig.append(&a, 100);
    rig.run();
    rig.told.clear();
    rig.append(&b, 100);
    rig.read(&a, 0, 10);
    rig.tick(30_000);
    let expected = [
        Told::Appended(b.clone(), Err(AppendError::Hung)),
        Told::Read(a.clone(), None),
        Told::State(State::Quarantined),
    ];
    assert_eq!(rig.told, expected);
    rig.read(&a, 0, 10);
    assert_eq!(rig.told.last(), Some(&Told::Read(a.clone(), None)));
    rig.run();
    assert_eq!(rig.told.last(), Some(&Told::State(State::Ok)));
    assert!(!rig.log.holds(&b), "its writer was told that it failed");
    rig.append(&b, 100);
    rig.run();
    assert!(rig.log.holds(&b));
}

#[test]
fn damaged_record_is_a_miss_and_is_told_once() {
    let mut rig = Rig::new(1);
    let id = incarnation("a", 1);
    rig.append(&id, 100);
    rig.run();
    rig.damaged = true;
    rig.read(&id, 0, 10);
    rig.read(&id, 0, 10);
    for _ in 0..2 {
        let (fetch, ..) = rig.fetches.remove(0);
        let outcome = Fetched::Corrupt;
        rig.event(Event::FetchEnd { fetch, outcome });
    }
    let bad = rig.told.iter().filter(|t| **t == Told::Bad(id.clone()));
    assert_eq!(bad.count(), 1);
    rig.read(&id, 0, 10);
    assert_eq!(rig.told.last(), Some(&Told::Read(id.clone(), None)));
    rig.run();
    assert!(rig.told.contains(&Told::Removed(id)));
}

#[test]
fn bytes_on_their_way_are_bounded() {
    let mut rig = Rig::new(1);
    for n in 0..20 {
        rig.append(&incarnation(&format!("k{n}"), n + 1), 400 << 10);
    }
    let busy = rig.told.iter();
    let busy = busy.filter(|t| matches!(t, Told::Appended(_, Err(AppendError::Busy))));
    assert!(busy.count() > 5);
    assert!(rig.log.figures().writing_bytes <= 4 << 20);
    rig.run();
    assert_eq!(rig.log.figures().writing_bytes, 0);
}

#[test]
fn too_large_an_object_is_refused_with_the_largest_size() {
    let mut rig = Rig::new(1);
    rig.append(&incarnation("a", 1), 1 << 20);
    let Some(Told::Appended(_, Err(AppendError::TooLarge { largest, .. }))) = rig.told.pop() else {
        panic!("not refused");
    };
    rig.append(&incarnation("a", 2), largest as usize);
    rig.run();
    assert!(rig.log.holds(&incarnation("a", 2)));
}

#[test]
fn stop_seals_what_is_open() {
    let mut rig = Rig::new(1);
    let id = incarnation("a", 1);
    rig.append(&id, 100);
    rig.run();
    rig.event(Event::Stop);
    rig.run();
    assert!(rig.told.contains(&Told::Stopped));
    let found = rig.cut(Cut::Power);
    assert!(found.buckets.iter().all(|b| b.sealed));
    assert!(rig.log.holds(&id));
}
