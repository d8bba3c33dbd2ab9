//! Accounts of the calls and of what the directory tells to count.
//!
//! Kept beside the directory and changed under the same lock, so that the counters add up with each other
//! and with the figures of the directory at every scrape.

use snowskin_directory::effect::Counter;
use snowskin_types::call::{Cancelled, Existing, Filter, Located, Reply, Request, Reserved};
use snowskin_types::object::Tier;
use snowskin_types::{Code, Failure};
use std::collections::BTreeMap;

/// Upper bounds of the object-size histogram, as upstream has them.
pub(crate) const SIZE_BOUNDS: [u64; 7] = [
    4 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
];

macro_rules! ops {
    ($($name:ident = $single:literal, $batch:expr, $help:literal;)*) => {
        /// What is asked of the master.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Op { $($name),* }
        /// Name, name of the batch form, and what it is, of each.
        pub(crate) const OPS: &[(Op, &str, Option<&str>, &str)] = &[$((Op::$name, $single, $batch, $help)),*];
    };
}

ops! {
    PutStart = "master_put_start", Some("master_batch_put_start"), "puts asked for a placement";
    PutRevoke = "master_put_revoke", Some("master_batch_put_revoke"), "puts given up by their writer";
    Locate = "master_get_replica_list", Some("master_batch_get_replica_list"), "look-ups";
    Exist = "master_exist_key", Some("master_batch_exist_key"), "existence checks";
    Remove = "master_remove", None, "removes by key";
    RemoveRegex = "master_remove_by_regex", None, "removes by pattern or prefix";
    RemoveAll = "master_remove_all", None, "removes of all keys";
    Mount = "master_mount_segment", None, "first registrations of a node's process life";
    Remount = "master_remount_segment", None, "registrations of a node that had a session before";
    Unmount = "master_unmount_segment", None, "nodes that left in good order";
    Ping = "master_ping", None, "heartbeats of nodes";
    Report = "snowskin_report", None, "reports of missing or damaged replicas";
    List = "snowskin_list", None, "pages of key listings";
    StatObject = "snowskin_stat_object", None, "questions about one object";
    Stat = "snowskin_stat", None, "questions about the cluster";
}

/// What has to be remembered of a request to account for its answer.
#[derive(Debug)]
pub(crate) struct Account {
    op: Op,
    items: usize,
    puts: Vec<(u64, u32)>,
}

impl Account {
    /// Of a request.
    pub(crate) fn of(request: &Request) -> Self {
        let (op, items) = match request {
            Request::Reserve { keys, .. } => (Op::PutStart, keys.len()),
            Request::Cancel { keys, .. } => (Op::PutRevoke, keys.len()),
            Request::Locate { keys, .. } => (Op::Locate, keys.len()),
            Request::Exists { keys, .. } => (Op::Exist, keys.len()),
            Request::Remove { keys, .. } => (Op::Remove, keys.len()),
            Request::RemoveMany {
                filter: Filter::All,
                ..
            } => (Op::RemoveAll, 1),
            Request::RemoveMany { .. } => (Op::RemoveRegex, 1),
            Request::Report { .. } => (Op::Report, 1),
            Request::List { .. } => (Op::List, 1),
            Request::StatObject { .. } => (Op::StatObject, 1),
            Request::Stat => (Op::Stat, 1),
        };
        let puts = match request {
            Request::Reserve { items, .. } => items
                .iter()
                .map(|item| (item.size, item.replicas.max(1)))
                .collect(),
            _ => Vec::new(),
        };
        Account { op, items, puts }
    }
}

/// Counts of one kind of call; the batch fields are of calls with more than one item.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OpCounts {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    pub(crate) batch_requests: u64,
    pub(crate) batch_failures: u64,
    pub(crate) batch_partial: u64,
    pub(crate) batch_items: u64,
    pub(crate) batch_failed_items: u64,
}

/// Counters that move with the directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    pub(crate) ops: Vec<OpCounts>,
    pub(crate) directory: BTreeMap<Counter, u64>,
    pub(crate) no_space: u64,
    pub(crate) fewer_replicas: u64,
    pub(crate) memory_hits: u64,
    pub(crate) memory_hit_bytes: u64,
    pub(crate) disk_hits: u64,
    pub(crate) disk_hit_bytes: u64,
    pub(crate) sizes: [u64; SIZE_BOUNDS.len()],
    pub(crate) size_count: u64,
    pub(crate) size_sum: u64,
    pub(crate) deadline_missed: u64,
    pub(crate) ambiguous: u64,
    pub(crate) retried: u64,
}

impl Ledger {
    fn op(&mut self, op: Op) -> &mut OpCounts {
        let index = op as usize;
        if self.ops.len() <= index {
            self.ops.resize(OPS.len(), OpCounts::default());
        }
        &mut self.ops[index]
    }

    /// Counts a request at its arrival.
    pub(crate) fn begin(&mut self, account: &Account) {
        let items = account.items as u64;
        let op = self.op(account.op);
        match account {
            // Upstream has no batch of removes: each key counts.
            Account { op: Op::Remove, .. } => op.requests += items,
            Account { items: 0 | 1, .. } => op.requests += 1,
            _ => {
                op.batch_requests += 1;
                op.batch_items += items;
            }
        }
    }

    /// Counts one thing that has no batch form.
    pub(crate) fn single(&mut self, op: Op) {
        self.op(op).requests += 1;
    }

    /// Counts its failure.
    pub(crate) fn single_failed(&mut self, op: Op) {
        self.op(op).failures += 1;
    }

    /// Counts the answer to a request.
    pub(crate) fn end(&mut self, account: &Account, reply: &Reply) {
        let failed = match reply {
            Reply::Failed(failure) => {
                if account.op == Op::PutStart && failure.code == Code::NoSpace {
                    self.no_space += account.items as u64;
                }
                account.items.max(1)
            }
            Reply::Reserved { items, .. } => self.reserved(account, items),
            Reply::Cancelled(items) => items
                .iter()
                .filter(|i| matches!(i, Cancelled::Failed(_)))
                .count(),
            Reply::Located { items, .. } => self.located(items),
            Reply::Exists(items) => items
                .iter()
                .filter(|i| matches!(i, Existing::Failed(_)))
                .count(),
            Reply::Removed(items) => items.iter().filter(|i| i.is_err()).count(),
            Reply::RemovedMany { .. }
            | Reply::Noted
            | Reply::Listed { .. }
            | Reply::Object(_)
            | Reply::Cluster(_) => 0,
        };
        self.fail(account, failed);
    }

    /// Counts a request that was not answered within its deadline.
    pub(crate) fn missed(&mut self, account: &Account) {
        self.deadline_missed += 1;
        self.fail(account, account.items.max(1));
    }

    fn fail(&mut self, account: &Account, failed: usize) {
        if failed == 0 {
            return;
        }
        let op = self.op(account.op);
        match account {
            Account { op: Op::Remove, .. } => op.failures += failed as u64,
            Account { items: 0 | 1, .. } => op.failures += 1,
            Account { items, .. } => {
                op.batch_failed_items += failed as u64;
                if failed >= *items {
                    op.batch_failures += 1;
                } else {
                    op.batch_partial += 1;
                }
            }
        }
    }

    fn reserved(&mut self, account: &Account, items: &[Reserved]) -> usize {
        let mut failed = 0;
        for (item, &(size, replicas)) in items.iter().zip(&account.puts) {
            match item {
                Reserved::Placed { places, .. } => {
                    if places.len() < replicas as usize {
                        self.fewer_replicas += 1;
                    }
                    self.size_count += 1;
                    self.size_sum = self.size_sum.saturating_add(size);
                    for (count, bound) in self.sizes.iter_mut().zip(SIZE_BOUNDS) {
                        *count += u64::from(size <= bound);
                    }
                }
                Reserved::Exists { .. } => failed += 1,
                Reserved::Failed(Failure { code, .. }) => {
                    failed += 1;
                    self.no_space += u64::from(*code == Code::NoSpace);
                }
            }
        }
        failed
    }

    fn located(&mut self, items: &[Located]) -> usize {
        let mut failed = 0;
        for item in items {
            match item {
                Located::Found {
                    shape, replicas, ..
                } => {
                    let memory = replicas.iter().any(|r| r.tier == Tier::Dram);
                    let (hits, bytes) = if memory {
                        (&mut self.memory_hits, &mut self.memory_hit_bytes)
                    } else {
                        (&mut self.disk_hits, &mut self.disk_hit_bytes)
                    };
                    *hits += 1;
                    *bytes = bytes.saturating_add(shape.size);
                }
                Located::Missing | Located::Failed(_) => failed += 1,
            }
        }
        failed
    }

    /// Counts what the directory says.
    pub(crate) fn count(&mut self, counter: Counter, by: u64) {
        *self.directory.entry(counter).or_default() += by;
    }

    /// Counts replicas told in an inventory whose publish had never been answered.
    pub(crate) fn ambiguous(&mut self, by: u64) {
        self.ambiguous += by;
    }

    /// Counts publishes sent again because their answer had not come.
    pub(crate) fn retried(&mut self, by: u64) {
        self.retried += by;
    }

    /// What the directory has counted.
    pub(crate) fn of(&self, counter: Counter) -> u64 {
        self.directory.get(&counter).copied().unwrap_or(0)
    }
}
