//! When a pool is quiet, and what the figures of a quiet pool say.

use super::look::Faulty;
use crate::exit::Ending;
use snowskin_client::{CallOptions, Client};
use snowskin_types::call::{ClusterStat, NodeStat, NodeState};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::PIN_DEADLINE;
use std::time::{Duration, Instant};

/// Pause between two looks at the figures; nodes tell theirs every 500 ms.
const PAUSE: Duration = Duration::from_millis(100);
/// Pins that have not ended this long after everything else was quiet are leaked: a read without progress
/// is cut before.
const PINS_LIMIT: Duration = Duration::from_millis(PIN_DEADLINE.0 + 2_000);

/// What the figures of live nodes add up to, against what the directory names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Balance {
    /// Objects that can be read, of all tenants.
    pub(super) objects: u64,
    /// Versions held beyond those that are named, node by node.
    pub(super) unpublished: u64,
    /// Versions named beyond those that are held, node by node.
    pub(super) ghosts: u64,
    /// Payload that the directory names at live nodes.
    pub(super) directory_bytes: u64,
    /// Payload that live nodes hold.
    pub(super) node_bytes: u64,
    /// Reads under way though nobody reads.
    pub(super) leaked_pins: u64,
    /// Live nodes.
    pub(super) nodes: u64,
    /// Nodes that the directory still names but that do not answer.
    pub(super) silent_nodes: u64,
}

impl Balance {
    /// Reads a stat of a quiet pool.
    pub(super) fn of(stat: &ClusterStat) -> Self {
        let mut sum = Balance {
            objects: stat.objects,
            silent_nodes: silent(stat),
            ..Balance::default()
        };
        for node in alive(stat) {
            let figures = node.figures.unwrap_or_default();
            sum.nodes += 1;
            sum.unpublished += figures.held.saturating_sub(node.replicas);
            sum.ghosts += node.replicas.saturating_sub(figures.held);
            sum.directory_bytes += node.replica_bytes;
            sum.node_bytes += figures.held_bytes;
            sum.leaked_pins += figures.pins;
        }
        sum
    }
}

fn alive(stat: &ClusterStat) -> impl Iterator<Item = &NodeStat> {
    let nodes = stat.nodes.iter();
    nodes.filter(|node| node.state == NodeState::Alive)
}

/// Gone nodes are no part of the pool any more: nothing of theirs is named.
fn silent(stat: &ClusterStat) -> u64 {
    let suspect = |node: &&NodeStat| node.state == NodeState::Suspect;
    stat.nodes.iter().filter(suspect).count() as u64
}

/// Why a pool is not quiet.
fn unrest(before: Option<&ClusterStat>, now: &ClusterStat) -> Option<String> {
    if !now.ready {
        return Some("the master still waits for inventories".into());
    }
    if now.unfinished > 0 {
        return Some(format!("{} puts have not ended", now.unfinished));
    }
    for node in alive(now) {
        let address = &node.place.address;
        if node.figures.is_none() {
            return Some(format!("the node at {address} has not told its figures"));
        }
        if node.owed > 0 {
            return Some(format!(
                "the node at {address} has {} changes to confirm",
                node.owed
            ));
        }
    }
    if before.map(stable) != Some(stable(now)) {
        return Some("objects are stored, removed, evicted or read".into());
    }
    None
}

/// The part of a stat that does not change by itself while nobody uses the pool.
fn stable(stat: &ClusterStat) -> ClusterStat {
    let mut stat = stat.clone();
    stat.leased = 0;
    for node in &mut stat.nodes {
        node.figures_age = Default::default();
    }
    stat
}

/// Whether all figures were told after a moment that lies `since` back.
fn is_fresh(stat: &ClusterStat, since: Duration) -> bool {
    alive(stat).all(|node| Duration::from_millis(node.figures_age.0) < since)
}

/// Waits until two looks at the pool, with figures of every live node told anew in between, show the
/// same and nothing under way.
pub(super) fn wait(client: &Client, patience: Duration) -> Result<ClusterStat, Ending> {
    let start = Instant::now();
    let mut before: Option<(ClusterStat, Instant)> = None;
    let mut pinned: Option<Instant> = None;
    let mut why = String::new();
    loop {
        let asked = Instant::now();
        let now = client.stat(&CallOptions::default())?;
        let came = Instant::now();
        let since = before.as_ref().map(|(_, at)| asked.duration_since(*at));
        if since.is_none_or(|since| is_fresh(&now, since)) {
            match unrest(before.as_ref().map(|(stat, _)| stat), &now) {
                Some(reason) => {
                    pinned = None;
                    why = reason;
                }
                None => {
                    let pins: u64 = alive(&now).filter_map(|n| n.figures).map(|f| f.pins).sum();
                    let since = *pinned.get_or_insert(came);
                    if pins == 0 || since.elapsed() >= PINS_LIMIT {
                        return Ok(now);
                    }
                    why = format!("{pins} reads are under way");
                }
            }
            before = Some((now, came));
        }
        if start.elapsed() >= patience {
            return Err(not_quiet(&why, patience).into());
        }
        pause(PAUSE);
    }
}

fn not_quiet(why: &str, patience: Duration) -> Failure {
    Failure::new(
        Code::RpcTimeout,
        Stage::Verify,
        format!(
            "the pool was not quiet within {:.1} s: {why}",
            patience.as_secs_f64()
        ),
    )
}

/// Waits until the owners of reported replicas have spoken: none is hidden any more.
pub(super) fn owners_spoke(
    client: &Client,
    faulty: &[Faulty],
    patience: Duration,
) -> Result<(), Ending> {
    let start = Instant::now();
    for f in faulty {
        let key = &f.replica.key;
        loop {
            let stat = client.stat_object(key.as_bytes(), &CallOptions::default())?;
            let hidden = stat.is_some_and(|stat| {
                let mut replicas = stat.replicas.iter();
                replicas.any(|r| r.state == "hidden" && r.place.node == f.replica.place.node)
            });
            if !hidden {
                break;
            }
            if start.elapsed() >= patience {
                let text = "the owner has not answered the report in time";
                let failure = Failure::new(Code::RpcTimeout, Stage::Verify, text);
                return Err(failure.with_key(key).into());
            }
            pause(PAUSE);
        }
    }
    Ok(())
}

fn pause(span: Duration) {
    let start = Instant::now();
    while let Some(left) = span.checked_sub(start.elapsed()).filter(|l| !l.is_zero()) {
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowskin_types::link::NodeFigures;
    use snowskin_types::object::Place;
    use snowskin_types::{Epoch, Millis, NodeId};

    fn node(replicas: u64, held: u64) -> NodeStat {
        NodeStat {
            place: Place {
                node: NodeId(1),
                epoch: Epoch(1),
                address: "a:1".into(),
            },
            state: NodeState::Alive,
            host: String::new(),
            dram_used: 0,
            dram_capacity: 0,
            replicas,
            policy: String::new(),
            replica_bytes: replicas * 10,
            owed: 0,
            figures: Some(NodeFigures {
                held,
                held_bytes: held * 10,
                ..NodeFigures::default()
            }),
            figures_age: Millis(7),
        }
    }

    fn pool(nodes: Vec<NodeStat>) -> ClusterStat {
        ClusterStat {
            ready: true,
            objects: 5,
            nodes,
            ..ClusterStat::default()
        }
    }

    #[test]
    fn what_is_held_and_not_named_is_unpublished_and_the_other_way_round_a_ghost() {
        let mut pinned = node(4, 4);
        pinned.figures.as_mut().unwrap().pins = 2;
        let balance = Balance::of(&pool(vec![node(3, 5), node(9, 8), pinned]));
        assert_eq!((balance.unpublished, balance.ghosts), (2, 1));
        assert_eq!((balance.directory_bytes, balance.node_bytes), (160, 170));
        assert_eq!((balance.leaked_pins, balance.nodes), (2, 3));
    }

    #[test]
    fn nodes_that_do_not_answer_are_not_compared() {
        let (mut suspect, mut gone) = (node(3, 9), node(3, 9));
        suspect.state = NodeState::Suspect;
        gone.state = NodeState::Gone;
        let balance = Balance::of(&pool(vec![suspect, gone, node(1, 1)]));
        let expected = Balance {
            objects: 5,
            directory_bytes: 10,
            node_bytes: 10,
            nodes: 1,
            silent_nodes: 1,
            ..Balance::default()
        };
        assert_eq!(balance, expected);
    }

    #[test]
    fn a_pool_is_quiet_when_nothing_is_under_way_and_nothing_has_changed() {
        let before = pool(vec![node(1, 1)]);
        let mut now = before.clone();
        now.leased = 9;
        now.nodes[0].figures_age = Millis(300);
        assert_eq!(unrest(Some(&before), &now), None);
        assert!(unrest(None, &now).is_some(), "the first look");
        type Change = fn(&mut ClusterStat);
        let changes: [Change; 7] = [
            |s| s.ready = false,
            |s| s.unfinished = 1,
            |s| s.objects += 1,
            |s| s.nodes[0].owed = 1,
            |s| s.nodes[0].figures = None,
            |s| s.nodes[0].state = NodeState::Suspect,
            |s| s.nodes[0].figures.as_mut().unwrap().reads += 1,
        ];
        for (at, change) in changes.iter().enumerate() {
            let mut other = now.clone();
            change(&mut other);
            assert!(unrest(Some(&before), &other).is_some(), "change {at}");
        }
    }

    #[test]
    fn figures_count_only_when_they_were_told_since_the_last_look() {
        let stat = pool(vec![node(1, 1)]);
        assert!(is_fresh(&stat, Duration::from_millis(8)));
        assert!(!is_fresh(&stat, Duration::from_millis(7)));
    }
}
