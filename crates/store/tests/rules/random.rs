//! Random events against a small model of a directory: whatever the order of events, losses and
//! answers, the invariants hold, and a read serves exactly the bytes that were written.

use crate::harness::*;
use proptest::prelude::*;
use snowskin_store::Config;
use snowskin_store::effect::Effect;
use snowskin_store::event::{Event, Filled, ScrubId};
use snowskin_types::call::Fault;
use snowskin_types::link::{ItemResult, NodeItem, Stamp, ToNode};
use snowskin_types::policy::EvictionPolicy;
use snowskin_types::time::Millis;
use snowskin_types::version::Version;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
enum Step {
    Write { key: u8, size: u64, pin: u8 },
    WriteAgain { pick: usize },
    EndWrite { pick: usize, filled: u8 },
    WriterGone { pick: usize },
    Read { pick: usize },
    EndRead { pick: usize },
    Progress { pick: usize },
    Scrubbed { pick: usize, sound: bool },
    Ack { pick: usize, answer: u8 },
    DropBatch { pick: usize },
    Retire { pick: usize },
    Verify { pick: usize, bad: bool },
    EvictNext { pick: usize },
    LoseLink,
    Register { later: bool },
    Pass { ms: u64 },
    Ping,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pick = || any::<prop::sample::Index>().prop_map(|i| i.index(1 << 20));
    let size = prop_oneof![1..5 * KIB, 1..100 * KIB, Just(300 * KIB)];
    let step = prop_oneof![
        8 => (0..6u8, size, 0..8u8).prop_map(|(key, size, pin)| Step::Write { key, size, pin }),
        1 => pick().prop_map(|pick| Step::WriteAgain { pick }),
        8 => (pick(), 0..8u8).prop_map(|(pick, filled)| Step::EndWrite { pick, filled }),
        1 => pick().prop_map(|pick| Step::WriterGone { pick }),
        6 => pick().prop_map(|pick| Step::Read { pick }),
        5 => pick().prop_map(|pick| Step::EndRead { pick }),
        1 => pick().prop_map(|pick| Step::Progress { pick }),
        2 => (pick(), any::<bool>()).prop_map(|(pick, sound)| Step::Scrubbed { pick, sound }),
        12 => (pick(), any::<u8>()).prop_map(|(pick, answer)| Step::Ack { pick, answer }),
        1 => pick().prop_map(|pick| Step::DropBatch { pick }),
        2 => pick().prop_map(|pick| Step::Retire { pick }),
        2 => (pick(), any::<bool>()).prop_map(|(pick, bad)| Step::Verify { pick, bad }),
        1 => pick().prop_map(|pick| Step::EvictNext { pick }),
        1 => Just(Step::LoseLink),
        2 => any::<bool>().prop_map(|later| Step::Register { later }),
        4 => prop_oneof![1..30u64, 1..700u64, Just(11_000)].prop_map(|ms| Step::Pass { ms }),
        3 => Just(Step::Ping),
    ];
    prop::collection::vec(step, 1..250)
}

/// What the test knows beside the store.
#[derive(Default)]
struct World {
    counter: u64,
    written: BTreeMap<Version, (String, u64)>,
    /// Versions that ended here: told absent, so never served again.
    ended: BTreeSet<Version>,
    /// Found damaged: not served, though a publish of before may still be on its way.
    damaged: BTreeSet<Version>,
    /// What the directory of the present session would name.
    named: BTreeSet<Version>,
}

fn pick_of<T: Copy>(list: impl IntoIterator<Item = T>, pick: usize) -> Option<T> {
    let list: Vec<T> = list.into_iter().collect();
    (!list.is_empty()).then(|| list[pick % list.len()])
}

impl World {
    fn run(&mut self, b: &mut Bench, step: Step) {
        let version = |world: &World, pick| pick_of(world.written.keys().copied(), pick);
        match step {
            Step::Write { key, size, pin } => {
                self.counter += 1;
                let term = b.session.term;
                let version = Version::new(term, self.counter).unwrap();
                let key = key.to_string();
                let mut request = write_of(&key, version, size);
                request.attributes.hard_pin = pin == 0;
                request.attributes.soft_pin = (pin == 1).then_some(Millis(400));
                request.patience = Millis(300);
                self.written.insert(version, (key, size));
                b.start_write(request);
            }
            Step::WriteAgain { pick } => {
                if let Some(version) = version(self, pick) {
                    let (key, size) = self.written[&version].clone();
                    let before = b.grants.len();
                    b.start_write(write_of(&key, version, size));
                    let granted = b.grants.len() > before;
                    assert!(
                        !granted || !self.ended.contains(&version),
                        "{version} again"
                    );
                }
            }
            Step::EndWrite { pick, filled } => {
                if let Some(write) = pick_of(b.grants.keys().copied(), pick) {
                    b.grants.remove(&write);
                    let filled = match filled {
                        0 => Filled::Broken,
                        1 => Filled::Corrupt,
                        _ => Filled::Sound,
                    };
                    b.end_write(write, filled);
                }
            }
            Step::WriterGone { pick } => {
                if let Some(write) = pick_of(1..=self.counter, pick) {
                    let write = snowskin_store::event::WriteId(write);
                    b.feed(Event::WriterGone { write });
                }
            }
            Step::Read { pick } => {
                if let Some(version) = version(self, pick) {
                    let (key, size) = self.written[&version].clone();
                    let read = b.start_read(read_of(&key, version));
                    match &b.serves[&read] {
                        Ok(grant) => {
                            assert_eq!(grant.shape.size, size);
                            assert!(!self.ended.contains(&version), "{version} had ended");
                        }
                        Err(failure) => {
                            let serving = b.now < b.store.serving_until();
                            let named =
                                self.named.contains(&version) && !self.damaged.contains(&version);
                            assert!(!(serving && named), "named and not served: {failure}");
                            b.serves.remove(&read);
                        }
                    }
                }
            }
            Step::EndRead { pick } => {
                if let Some(read) = pick_of(b.serves.keys().copied(), pick) {
                    b.serves.remove(&read);
                    b.end_read(read);
                }
            }
            Step::Progress { pick } => {
                if let Some(read) = pick_of(b.serves.keys().copied(), pick) {
                    b.feed(Event::ReadProgress { read });
                }
            }
            Step::Scrubbed { pick, sound } => {
                let scrub = |e: &Effect| match e {
                    Effect::Scrub { scrub, .. } => Some(*scrub),
                    _ => None,
                };
                let running: Vec<ScrubId> = b.others.iter().filter_map(scrub).collect();
                if let Some(scrub) = pick_of(running, pick) {
                    b.others
                        .retain(|e| !matches!(e, Effect::Scrub { scrub: s, .. } if *s == scrub));
                    let before: BTreeSet<_> = b.store.served().map(|(_, v)| v).collect();
                    b.feed(Event::Scrubbed { scrub, sound });
                    let after: BTreeSet<_> = b.store.served().map(|(_, v)| v).collect();
                    self.damaged.extend(before.difference(&after));
                }
            }
            Step::Ack { pick, answer } => {
                // In order, as the link delivers.
                if !b.batches.is_empty() && pick % 4 != 0 {
                    let sent = b.batches.remove(0);
                    if b.store.session() == Some(sent.session) {
                        let mut results = Vec::new();
                        for (n, item) in (0u8..).zip(&sent.items) {
                            let result = self.directory(item, answer.wrapping_add(n));
                            results.push(result);
                        }
                        b.ack(&sent, &results);
                    }
                }
            }
            Step::DropBatch { pick } => {
                if !b.batches.is_empty() {
                    // Lost on the way: the directory never saw it.
                    let at = pick % b.batches.len();
                    b.batches.remove(at);
                }
            }
            Step::Retire { pick } => {
                if let (Some(version), true) = (version(self, pick), b.store.session().is_some()) {
                    let (key, _) = self.written[&version].clone();
                    self.named.remove(&version);
                    self.ended.insert(version);
                    let (session, items) = (b.session, vec![(name(&key), version)]);
                    b.master(ToNode::Retire { session, items });
                }
            }
            Step::Verify { pick, bad } => {
                if let (Some(version), true) = (version(self, pick), b.store.session().is_some()) {
                    let (key, _) = self.written[&version].clone();
                    let fault = if bad { Fault::Bad } else { Fault::Gone };
                    let (session, items) = (b.session, vec![(name(&key), version, fault)]);
                    b.master(ToNode::Verify { session, items });
                }
            }
            Step::EvictNext { pick } => {
                if let (Some(version), true) = (version(self, pick), b.store.session().is_some()) {
                    let (key, _) = self.written[&version].clone();
                    let (session, items) = (b.session, vec![(name(&key), version)]);
                    b.master(ToNode::EvictNext { session, items });
                }
            }
            Step::LoseLink => {
                b.lose_link();
                b.batches.clear();
            }
            Step::Register { later } => {
                b.batches.clear();
                let term = b.session.term.0 + u32::from(later);
                if later {
                    self.named.clear();
                }
                b.register(term);
            }
            Step::Pass { ms } => {
                b.now = b.now + Millis(ms);
                b.feed(Event::Tick);
            }
            Step::Ping => {
                if b.store.session().is_some() {
                    let (session, confirmed) = (b.session, Stamp(b.now.0));
                    b.master(ToNode::Ping {
                        session,
                        nonce: 0,
                        confirmed,
                    });
                }
            }
        }
        for item in b.batches.iter().flat_map(|sent| &sent.items) {
            if let Some(version) = absent(item) {
                self.ended.insert(version);
            }
        }
        let usage = b.store.usage();
        assert!(
            usage.leased + usage.pinned + usage.unfinished <= usage.used,
            "{usage:?}"
        );
        assert!(b.batches.iter().all(|sent| sent.items.len() <= 1024));
    }

    /// A directory that grants, refuses and delays at random, but never contradicts itself.
    fn directory(&mut self, item: &NodeItem, dice: u8) -> ItemResult {
        match item {
            NodeItem::Publish { version, .. } => match dice % 8 {
                0 => ItemResult::Pending,
                1 if !self.named.contains(version) => ItemResult::Refused,
                _ => {
                    if !self.ended.contains(version) {
                        self.named.insert(*version);
                    }
                    ItemResult::Ok
                }
            },
            NodeItem::Retract { version, bad, .. } => match dice % 4 {
                0 if !bad => ItemResult::Leased(Millis(u64::from(dice))),
                1 => ItemResult::Held(Millis(50)),
                _ => {
                    self.named.remove(version);
                    ItemResult::Ok
                }
            },
            NodeItem::Absent { version, .. } => {
                assert!(!self.named.contains(version), "named and absent");
                ItemResult::Ok
            }
            NodeItem::InventoryEnd => ItemResult::Ok,
        }
    }
}

/// After the storm: with a master that answers, everything ends, and nothing leaks.
fn calm(b: &mut Bench) {
    for write in b.grants.keys().copied().collect::<Vec<_>>() {
        b.end_write(write, Filled::Broken);
    }
    b.batches.clear();
    let term = b.session.term.0;
    b.register(term);
    for read in b.serves.keys().copied().collect::<Vec<_>>() {
        b.end_read(read);
    }
    for _ in 0..100 {
        b.ack_all();
        b.pass(20);
        let scrubs: Vec<_> = std::mem::take(&mut b.others);
        for effect in scrubs {
            match effect {
                Effect::Scrub { scrub, .. } => b.feed(Event::Scrubbed { scrub, sound: true }),
                Effect::CutRead { .. } | Effect::CutWrite { .. } => {}
                _ => {}
            }
        }
        for write in std::mem::take(&mut b.grants).into_keys() {
            b.end_write(write, Filled::Broken);
        }
    }
    assert!(b.store.is_inventoried());
    let held: Vec<_> = b.store.served().map(|(n, v)| (n.clone(), v)).collect();
    let session = b.session;
    b.master(ToNode::Retire {
        session,
        items: held,
    });
    b.ack_all();
    let usage = b.store.usage();
    assert_eq!(
        (usage.used, usage.replicas, usage.waiting, usage.reads),
        (0, 0, 0, 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn invariants_hold_under_random_events(steps in steps(), s3 in any::<bool>()) {
        let eviction = if s3 { EvictionPolicy::S3Fifo } else { EvictionPolicy::Lru };
        let mut b = Bench::with(Config {
            eviction: Some(eviction),
            eviction_high: Some(0.8),
            eviction_ratio: Some(0.2),
            ..config(256 * KIB)
        });
        let mut world = World::default();
        for step in steps {
            world.run(&mut b, step);
        }
        calm(&mut b);
    }
}
