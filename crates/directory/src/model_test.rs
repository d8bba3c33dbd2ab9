//! Random histories of one node against a few lines that say what should come out.

use crate::event::LinkId;
use crate::testkit::*;
use proptest::prelude::*;
use snowskin_types::call::*;
use snowskin_types::link::{ItemResult, NodeItem, ToNode};
use snowskin_types::time::Now;
use snowskin_types::version::Version;
use std::collections::BTreeMap;

const KEYS: usize = 2;

#[derive(Debug, Clone)]
enum Op {
    Reserve(usize, PutMode),
    Publish(usize, usize),
    Abort(usize, usize),
    Cancel(usize, usize),
    Locate(usize),
    Exists(usize),
    Evict(usize),
    Remove(usize, bool),
    Pass(u64),
    Reconnect,
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    let mode = prop_oneof![Just(PutMode::IfAbsent), Just(PutMode::Replace)];
    prop_oneof![
        4 => (key.clone(), mode).prop_map(|(k, m)| Op::Reserve(k, m)),
        6 => (key.clone(), 0..3usize).prop_map(|(k, i)| Op::Publish(k, i)),
        1 => (key.clone(), 0..3usize).prop_map(|(k, i)| Op::Abort(k, i)),
        1 => (key.clone(), 0..3usize).prop_map(|(k, i)| Op::Cancel(k, i)),
        3 => key.clone().prop_map(Op::Locate),
        2 => key.clone().prop_map(Op::Exists),
        3 => key.clone().prop_map(Op::Evict),
        2 => (key, any::<bool>()).prop_map(|(k, f)| Op::Remove(k, f)),
        3 => (1..20_000u64).prop_map(Op::Pass),
        1 => Just(Op::Reconnect),
        1 => Just(Op::Restart),
    ]
}

#[derive(Debug, Default, Clone)]
struct Truth {
    current: Option<Version>,
    /// Puts under way, with the time they began.
    placed: Vec<(Version, Now)>,
    leased: Now,
    used: Now,
}

struct Run {
    w: World,
    link: LinkId,
    epoch: u64,
    truth: BTreeMap<usize, Truth>,
    last: Version,
}

fn key(k: usize) -> String {
    format!("key{k}")
}

impl Run {
    fn new() -> Self {
        let (w, links) = World::nodes(1);
        Run {
            w,
            link: links[0],
            epoch: 1,
            truth: (0..KEYS).map(|k| (k, Truth::default())).collect(),
            last: Version::NONE,
        }
    }

    /// The node obeys all orders to retire.
    fn obey(&mut self) {
        loop {
            let sent = self.w.sent(self.link);
            self.w.clear();
            let orders = sent.into_iter().filter_map(|m| match m {
                ToNode::Retire { items, .. } => Some(items),
                _ => None,
            });
            let absent: Vec<NodeItem> = orders
                .flatten()
                .map(|(name, version)| NodeItem::Absent { name, version })
                .collect();
            if absent.is_empty() {
                return;
            }
            self.w.tell(self.link, absent);
        }
    }

    fn t(&mut self, k: usize) -> &mut Truth {
        self.truth.get_mut(&k).unwrap()
    }

    fn step(&mut self, op: &Op) {
        let now = self.w.now;
        match *op {
            Op::Reserve(k, mode) => {
                let t = self.t(k).clone();
                let mut it = item(SIZE, 1);
                it.mode = mode;
                let got = self.w.reserve(&[&key(k)], it).0.remove(0);
                let newest = t.placed.last().map(|p| p.0);
                match (mode, t.current, newest) {
                    (PutMode::IfAbsent, Some(version), _) => assert_eq!(
                        got,
                        Reserved::Exists {
                            version,
                            unfinished: false
                        }
                    ),
                    (PutMode::IfAbsent, None, Some(version)) => assert_eq!(
                        got,
                        Reserved::Exists {
                            version,
                            unfinished: true
                        }
                    ),
                    _ if t.placed.len() >= 8 => assert!(matches!(
                        got,
                        Reserved::Exists {
                            unfinished: true,
                            ..
                        }
                    )),
                    _ => {
                        let Reserved::Placed { version, .. } = got else {
                            panic!("{got:?}");
                        };
                        assert!(version > self.last);
                        self.last = version;
                        self.t(k).placed.push((version, now));
                    }
                }
            }
            Op::Publish(k, i) => {
                let Some((v, _)) = self.t(k).placed.get(i).copied() else {
                    return;
                };
                let result = self.w.tell(self.link, vec![publish(&key(k), v)])[0];
                let t = self.t(k);
                let replaced = t.current.is_some() || i > 0;
                assert_eq!(result == ItemResult::Pending, replaced, "{result:?}");
                // A promise to readers of the key goes on for the new version.
                let leased = t.current.map_or(Now(0), |_| t.leased);
                *t = Truth {
                    current: Some(v),
                    placed: t.placed.split_off(i + 1),
                    leased,
                    used: now,
                };
                let seq = self.w.last_seq(self.link);
                let sent = self.w.sent(self.link);
                let orders = sent.into_iter().filter_map(|m| match m {
                    ToNode::Retire { items, .. } => Some(items),
                    _ => None,
                });
                let absent: Vec<NodeItem> = orders
                    .flatten()
                    .map(|(name, version)| NodeItem::Absent { name, version })
                    .collect();
                if replaced {
                    self.w.tell(self.link, absent);
                    assert_eq!(self.w.acked(self.link, seq).last(), Some(&ItemResult::Ok));
                }
            }
            Op::Abort(k, i) => {
                if i < self.t(k).placed.len() {
                    let (v, _) = self.t(k).placed.remove(i);
                    self.w.tell(self.link, vec![absent(&key(k), v)]);
                }
            }
            Op::Cancel(k, i) => {
                let t = self.t(k).clone();
                let (version, want) = match (t.placed.get(i), t.current) {
                    (Some((v, _)), _) => (*v, Cancelled::Ended),
                    (None, Some(v)) => (v, Cancelled::Published),
                    _ => return,
                };
                self.t(k).placed.retain(|p| p.0 != version);
                let reply = self.w.call(Request::Cancel {
                    tenant: tenant(),
                    keys: keys(&[&key(k)]),
                    versions: vec![version],
                });
                assert_eq!(reply, Reply::Cancelled(vec![want]));
            }
            Op::Locate(k) => {
                let found = self.w.found(&key(k));
                assert_eq!(found, self.t(k).current);
                if found.is_some() {
                    self.t(k).leased = now + TTL;
                    self.t(k).used = now;
                }
            }
            Op::Exists(k) => {
                let got = self.w.exists(&key(k));
                let t = self.t(k);
                match got {
                    Existing::Yes { lease, .. } => {
                        assert!(t.current.is_some());
                        let end = (now + TTL).min(Now(t.used.0 + 6 * TTL.0));
                        assert_eq!(lease, now.until(end));
                        t.leased = t.leased.max(end);
                    }
                    _ => assert_eq!(t.current, None),
                }
            }
            Op::Evict(k) => {
                let Some(v) = self.t(k).current else {
                    return;
                };
                let result = self.w.tell(self.link, vec![retract(&key(k), v)])[0];
                let left = now.until(self.t(k).leased);
                if left.0 > 0 {
                    assert_eq!(result, ItemResult::Leased(left));
                } else {
                    assert_eq!(result, ItemResult::Ok);
                    self.t(k).current = None;
                    self.w.tell(self.link, vec![absent(&key(k), v)]);
                }
            }
            Op::Remove(k, force) => {
                let t = self.t(k).clone();
                let id = self.w.ask(World::remove_request(&[&key(k)], force));
                let leased = t.current.is_some() && t.leased > now && !force;
                if leased {
                    assert_eq!(self.w.removed(id), Some(vec![-706]));
                    return;
                }
                let owned = t.current.is_some() || !t.placed.is_empty();
                assert_eq!(self.w.answer(id).is_none(), owned);
                let orders = self.w.retired(self.link);
                let all = orders.into_iter().map(|v| absent(&key(k), v)).collect();
                self.w.tell(self.link, all);
                let code = if t.current.is_some() { 0 } else { -704 };
                assert_eq!(self.w.removed(id), Some(vec![code]));
                *self.t(k) = Truth::default();
            }
            Op::Pass(span) => {
                self.w.pass(span);
                let now = self.w.now;
                for t in self.truth.values_mut() {
                    t.placed.retain(|p| now.since(p.1).0 < 30_000);
                }
            }
            Op::Reconnect => {
                self.w.lose(self.link);
                self.link = self.w.rejoin(1, self.epoch);
                let mut items: Vec<NodeItem> = self
                    .truth
                    .iter()
                    .filter_map(|(k, t)| Some(told(&key(*k), t.current?, true)))
                    .collect();
                items.push(NodeItem::InventoryEnd);
                let results = self.w.tell(self.link, items);
                assert!(results.iter().all(|r| *r == ItemResult::Ok));
            }
            Op::Restart => {
                self.w.lose(self.link);
                self.epoch += 1;
                self.link = self.w.join(1, self.epoch);
                for t in self.truth.values_mut() {
                    *t = Truth::default();
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_node_behaves_as_the_model_says(ops in prop::collection::vec(op(), 1..80)) {
        let mut run = Run::new();
        for op in &ops {
            run.w.clear();
            run.step(op);
            run.obey();
        }
        // Nothing stays behind: with all puts given up and all keys removed the directory is empty.
        run.w.clear();
        run.w.pass(31_000);
        run.obey();
        for k in 0..KEYS {
            run.w.clear();
            let id = run.w.ask(World::remove_request(&[&key(k)], true));
            run.obey();
            let _ = id;
        }
        prop_assert_eq!(run.w.d.gauges().entries, 0);
        prop_assert_eq!(run.w.d.gauges().obligations, 0);
        prop_assert_eq!(run.w.d.next_deadline() > run.w.now, true);
    }
}
