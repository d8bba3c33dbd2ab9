//! The state directory: the little that a master must remember over its own death.
//!
//! One `redb` file beside one lock file. What is written here is written before it is relied on; what
//! cannot be read is an error with the file's name, never an empty start.

use redb::{Builder, Database, Durability, ReadableTable, StorageBackend, TableDefinition};
use snowskin_directory::effect::{KnownNode, Record, Restored};
use snowskin_types::{ClusterId, Epoch, NodeId, Term, Version};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the database within the directory.
const DATABASE: &str = "state.redb";
/// Name of the lock within the directory.
const LOCK: &str = "lock";
/// What this build writes; another number is another layout.
const FORMAT: u64 = 1;
/// Pages kept in memory: the whole content of ten thousand nodes is far below this.
const CACHE_BYTES: usize = 4 << 20;

const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// Node id -> (epoch, address, mark, forgotten).
type NodeRow = (u64, &'static str, Option<u32>, bool);
const NODES: TableDefinition<'static, u64, NodeRow> = TableDefinition::new("nodes");

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Another process holds the lock.
    #[error(
        "the state directory {} is in use by another master{}; give each master its own --state-dir",
        dir.display(), owner.as_ref().map(|p| format!(" (pid {p})")).unwrap_or_default()
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// Process that holds it, as far as it can be read.
        owner: Option<String>,
    },
    /// The directory or a file in it cannot be made, read or written.
    #[error("the state directory {} cannot be used: {verb}: {cause}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What was tried.
        verb: &'static str,
        /// What the system says.
        cause: std::io::Error,
    },
    /// The file is not one of ours, or damaged.
    #[error(
        "{} is damaged or not a master's state file: {cause}; with it moved away the master starts as a new cluster, \
         and its nodes have to be restarted",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        cause: String,
    },
    /// Written by another release.
    #[error("{} has layout {found}, this build reads layout {FORMAT}", file.display())]
    Layout {
        /// The file.
        file: PathBuf,
        /// Its layout.
        found: u64,
    },
    /// `--cluster-id` and the directory disagree.
    #[error(
        "the state directory {} belongs to cluster {:016x}, but --cluster-id says {:016x}; use its own directory for each cluster",
        dir.display(), found.0, wanted.0
    )]
    OtherCluster {
        /// The directory.
        dir: PathBuf,
        /// What it holds.
        found: ClusterId,
        /// What was asked for.
        wanted: ClusterId,
    },
    /// The term cannot be raised any more.
    #[error("the state directory {} is at term {}, the highest that there is", dir.display(), Version::TERM_MAX)]
    TermsUsedUp {
        /// The directory.
        dir: PathBuf,
    },
}

/// Who the master is when it starts, before its directory has a say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    /// What `--cluster-id` demands.
    pub(crate) wanted: Option<ClusterId>,
    /// Taken by a fresh directory when nothing is demanded.
    pub(crate) fresh: ClusterId,
    /// The term is never below this, so that a wiped directory does not go back in terms.
    pub(crate) term_floor: Term,
}

/// An open state directory. Its lock ends with it.
#[derive(Debug)]
pub(crate) struct StateStore {
    database: Database,
    /// Held, never read.
    _lock: Option<File>,
}

impl StateStore {
    /// Takes the directory (made when missing), raises the term durably and reads what is known.
    pub(crate) fn open(dir: &Path, identity: Identity) -> Result<(Self, Restored), StateError> {
        let io = |verb: &'static str| {
            let dir = dir.to_owned();
            move |cause| StateError::Io { dir, verb, cause }
        };
        std::fs::create_dir_all(dir).map_err(io("make it"))?;
        let lock = take_lock(dir)?;
        let file = dir.join(DATABASE);
        let handle = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&file)
            .map_err(io("open its database"))?;
        let backend = redb::backends::FileBackend::new(handle).map_err(|e| damaged(&file, &e))?;
        let (mut store, restored) = Self::open_backend(backend, dir, identity)?;
        // The name of a new file is durable only with its directory.
        File::open(dir)
            .and_then(|d| d.sync_all())
            .map_err(io("sync it"))?;
        store._lock = Some(lock);
        Ok((store, restored))
    }

    /// As [`StateStore::open`], over any storage; `dir` only names it in errors.
    pub(crate) fn open_backend(
        backend: impl StorageBackend,
        dir: &Path,
        identity: Identity,
    ) -> Result<(Self, Restored), StateError> {
        let file = dir.join(DATABASE);
        let mut builder = Builder::new();
        builder
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true);
        let database = builder
            .create_with_backend(backend)
            .map_err(|e| damaged(&file, &e))?;
        let store = StateStore {
            database,
            _lock: None,
        };
        let restored = store.begin_term(dir, &file, identity)?;
        Ok((store, restored))
    }

    fn begin_term(
        &self,
        dir: &Path,
        file: &Path,
        identity: Identity,
    ) -> Result<Restored, StateError> {
        let bad = |e: redb::Error| damaged(file, &e);
        let mut transaction = self.database.begin_write().map_err(|e| bad(e.into()))?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(|e| bad(e.into()))?;
        let restored;
        {
            let mut meta = transaction.open_table(META).map_err(|e| bad(e.into()))?;
            let get = |meta: &redb::Table<'_, &str, u64>, name: &str| {
                meta.get(name)
                    .map(|v| v.map(|v| v.value()))
                    .map_err(|e| bad(e.into()))
            };
            let format = get(&meta, "format")?;
            if let Some(found) = format.filter(|&f| f != FORMAT) {
                return Err(StateError::Layout {
                    file: file.to_owned(),
                    found,
                });
            }
            let stored = get(&meta, "cluster")?.map(ClusterId);
            if let (Some(found), Some(wanted)) = (stored, identity.wanted)
                && found != wanted
            {
                return Err(StateError::OtherCluster {
                    dir: dir.to_owned(),
                    found,
                    wanted,
                });
            }
            let cluster = stored.or(identity.wanted).unwrap_or(identity.fresh);
            let last = get(&meta, "term")?.unwrap_or(0);
            let term = last.saturating_add(1).max(u64::from(identity.term_floor.0));
            let term = u32::try_from(term)
                .ok()
                .filter(|&t| t <= Version::TERM_MAX)
                .map(Term)
                .ok_or_else(|| StateError::TermsUsedUp {
                    dir: dir.to_owned(),
                })?;
            for (name, value) in [
                ("format", FORMAT),
                ("cluster", cluster.0),
                ("term", u64::from(term.0)),
            ] {
                meta.insert(name, value).map_err(|e| bad(e.into()))?;
            }
            let nodes = transaction.open_table(NODES).map_err(|e| bad(e.into()))?;
            let mut known = Vec::new();
            for row in nodes.iter().map_err(|e| bad(e.into()))? {
                let (id, row) = row.map_err(|e| bad(e.into()))?;
                let (epoch, address, mark, forgotten) = row.value();
                known.push(KnownNode {
                    node: NodeId(id.value()),
                    epoch: Epoch(epoch),
                    address: address.into(),
                    mark: mark.map(Term),
                    forgotten,
                });
            }
            restored = Restored {
                cluster,
                term,
                nodes: known,
            };
        }
        transaction.commit().map_err(|e| bad(e.into()))?;
        Ok(restored)
    }

    /// Applies records in order, all or none, durable when it returns.
    pub(crate) fn write(&self, records: &[Record]) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut nodes = transaction.open_table(NODES)?;
            for record in records {
                apply(&mut nodes, record)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

struct Row {
    epoch: Epoch,
    address: Arc<str>,
    mark: Option<u32>,
    forgotten: bool,
}

fn apply(nodes: &mut redb::Table<'_, u64, NodeRow>, record: &Record) -> Result<(), redb::Error> {
    let read = |nodes: &redb::Table<'_, u64, NodeRow>, node: NodeId| -> Result<_, redb::Error> {
        Ok(nodes.get(node.0)?.map(|row| {
            let (epoch, address, mark, forgotten) = row.value();
            Row {
                epoch: Epoch(epoch),
                address: address.into(),
                mark,
                forgotten,
            }
        }))
    };
    match record {
        Record::Node {
            node,
            epoch,
            address,
        } => {
            // A new process life holds nothing of the old one, so what was said of that one ends.
            let old = read(nodes, *node)?.filter(|row| row.epoch == *epoch);
            let row = Row {
                epoch: *epoch,
                address: address.clone(),
                mark: old.as_ref().and_then(|row| row.mark),
                forgotten: old.is_some_and(|row| row.forgotten),
            };
            write_row(nodes, *node, row)
        }
        Record::Mark { nodes: list, term } => {
            for (node, epoch) in list {
                let row = read(nodes, *node)?.unwrap_or(Row {
                    epoch: *epoch,
                    address: "".into(),
                    mark: None,
                    forgotten: false,
                });
                if row.epoch != *epoch {
                    continue;
                }
                // The oldest term counts: what changed then is remembered by nobody in a later one.
                let mark = row.mark.map_or(term.0, |old| old.min(term.0));
                write_row(
                    nodes,
                    *node,
                    Row {
                        mark: Some(mark),
                        // Only a node that is known (again) is marked.
                        forgotten: false,
                        ..row
                    },
                )?;
            }
            Ok(())
        }
        Record::ClearMark { node } => match read(nodes, *node)? {
            Some(row) => write_row(nodes, *node, Row { mark: None, ..row }),
            None => Ok(()),
        },
        Record::Forget { node, epoch } => match read(nodes, *node)? {
            Some(row) if row.epoch == *epoch => write_row(
                nodes,
                *node,
                Row {
                    forgotten: true,
                    ..row
                },
            ),
            _ => Ok(()),
        },
        Record::Left { node, epoch } => {
            if read(nodes, *node)?.is_some_and(|row| row.epoch == *epoch) {
                nodes.remove(node.0)?;
            }
            Ok(())
        }
    }
}

fn write_row(
    nodes: &mut redb::Table<'_, u64, NodeRow>,
    node: NodeId,
    row: Row,
) -> Result<(), redb::Error> {
    nodes.insert(
        node.0,
        (row.epoch.0, &*row.address, row.mark, row.forgotten),
    )?;
    Ok(())
}

fn damaged(file: &Path, cause: &dyn std::fmt::Display) -> StateError {
    StateError::Damaged {
        file: file.to_owned(),
        cause: cause.to_string(),
    }
}

/// Takes the directory's lock and leaves our process id in it for the message of the next one.
fn take_lock(dir: &Path) -> Result<File, StateError> {
    let io = |verb: &'static str| {
        let dir = dir.to_owned();
        move |cause| StateError::Io { dir, verb, cause }
    };
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join(LOCK))
        .map_err(io("open its lock"))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            // The process id is a courtesy: without it the message is still right.
            let known = (&lock).take(20).read_to_string(&mut owner).is_ok();
            let owner = owner.trim().to_owned();
            return Err(StateError::InUse {
                dir: dir.to_owned(),
                owner: (known && !owner.is_empty()).then_some(owner),
            });
        }
        Err(TryLockError::Error(cause)) => return Err(io("lock it")(cause)),
    }
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .map_err(io("write its lock"))?;
    Ok(lock)
}

#[cfg(test)]
mod tests;
