use super::*;
use crate::journal::Handed;
use redb::backends::InMemoryBackend;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

fn identity() -> Identity {
    Identity {
        wanted: None,
        fresh: ClusterId(77),
        term_floor: Term(5),
    }
}

fn node(n: u64, epoch: u64) -> Record {
    Record::Node {
        node: NodeId(n),
        epoch: Epoch(epoch),
        address: format!("host{n}:1").into(),
    }
}

fn mark(n: u64, epoch: u64, term: u32) -> Record {
    Record::Mark {
        nodes: vec![(NodeId(n), Epoch(epoch))],
        term: Term(term),
    }
}

#[test]
fn each_start_raises_the_term_and_keeps_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let (store, first) = StateStore::open(dir.path(), identity()).unwrap();
    assert_eq!((first.cluster, first.term), (ClusterId(77), Term(5)));
    drop(store);
    let (store, second) = StateStore::open(
        dir.path(),
        Identity {
            fresh: ClusterId(88),
            ..identity()
        },
    )
    .unwrap();
    assert_eq!((second.cluster, second.term), (ClusterId(77), Term(6)));
    drop(store);
    let later = Identity {
        term_floor: Term(900),
        ..identity()
    };
    let (_store, third) = StateStore::open(dir.path(), later).unwrap();
    assert_eq!(third.term, Term(900));
}

#[test]
fn a_second_master_on_the_same_directory_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, _) = StateStore::open(dir.path(), identity()).unwrap();
    let error = StateStore::open(dir.path(), identity()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StateError::InUse { .. }), "{text}");
    assert!(text.contains("--state-dir"), "{text}");
    assert!(text.contains(&std::process::id().to_string()), "{text}");
}

#[test]
fn another_cluster_id_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = |id| Identity {
        wanted: Some(ClusterId(id)),
        ..identity()
    };
    let (store, restored) = StateStore::open(dir.path(), wanted(3)).unwrap();
    assert_eq!(restored.cluster, ClusterId(3));
    drop(store);
    let error = StateStore::open(dir.path(), wanted(4)).unwrap_err();
    assert!(matches!(error, StateError::OtherCluster { .. }), "{error}");
    assert!(StateStore::open(dir.path(), wanted(3)).is_ok());
}

#[test]
fn node_records_and_marks_live_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = StateStore::open(dir.path(), identity()).unwrap();
    store
        .write(&[node(1, 10), node(2, 20), node(3, 30), mark(1, 10, 5)])
        .unwrap();
    // The oldest term of a mark counts, and a mark of a former process life is none.
    store.write(&[mark(1, 10, 6), mark(2, 19, 6)]).unwrap();
    store
        .write(&[Record::Forget {
            node: NodeId(3),
            epoch: Epoch(30),
        }])
        .unwrap();
    // The same life registering again changes nothing of what is said of it.
    store.write(&[node(1, 10)]).unwrap();
    drop(store);
    let (store, restored) = StateStore::open(dir.path(), identity()).unwrap();
    let seen: Vec<_> = restored
        .nodes
        .iter()
        .map(|n| (n.node.0, n.epoch.0, n.mark.map(|t| t.0), n.forgotten))
        .collect();
    assert_eq!(
        seen,
        [
            (1, 10, Some(5), false),
            (2, 20, None, false),
            (3, 30, None, true)
        ]
    );
    assert_eq!(&*restored.nodes[0].address, "host1:1");
    store
        .write(&[
            Record::ClearMark { node: NodeId(1) },
            // A new life ends what was said of the old one.
            node(3, 31),
            Record::Forget {
                node: NodeId(2),
                epoch: Epoch(20),
            },
            // A mark makes a forgotten node of the same life known again.
            mark(2, 20, 8),
            Record::ClearMark { node: NodeId(2) },
        ])
        .unwrap();
    drop(store);
    let (_store, restored) = StateStore::open(dir.path(), identity()).unwrap();
    assert!(
        restored
            .nodes
            .iter()
            .all(|n| n.mark.is_none() && !n.forgotten)
    );
}

/// Keeps what a power cut keeps: the content at the last sync, plus a prefix of what was written
/// since; after `budget` operations every call fails, as if the process had been killed there.
#[derive(Debug, Clone)]
struct Cut(Arc<CutInner>);

#[derive(Debug)]
struct CutInner {
    live: InMemoryBackend,
    durable: Mutex<Vec<u8>>,
    budget: AtomicU64,
    used: AtomicU64,
}

impl Cut {
    fn over(content: &[u8], budget: u64) -> Self {
        let live = InMemoryBackend::new();
        live.set_len(content.len() as u64).unwrap();
        live.write(0, content).unwrap();
        Cut(Arc::new(CutInner {
            live,
            durable: Mutex::new(content.to_vec()),
            budget: AtomicU64::new(budget),
            used: AtomicU64::new(0),
        }))
    }

    fn spend(&self) -> std::io::Result<()> {
        if self.0.used.fetch_add(1, Ordering::Relaxed) >= self.0.budget.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("cut"));
        }
        Ok(())
    }

    fn live_content(&self) -> Vec<u8> {
        let mut out = vec![0; self.0.live.len().unwrap() as usize];
        self.0.live.read(0, &mut out).unwrap();
        out
    }

    fn durable_content(&self) -> Vec<u8> {
        self.0.durable.lock().unwrap().clone()
    }
}

impl StorageBackend for Cut {
    fn len(&self) -> std::io::Result<u64> {
        self.0.live.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.live.read(offset, out)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.spend()?;
        self.0.live.set_len(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.spend()?;
        *self.0.durable.lock().unwrap() = self.live_content();
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.spend()?;
        self.0.live.write(offset, data)
    }
}

/// Starts with one node, then writes three groups; returns how many groups were acknowledged.
fn life(backend: &Cut) -> Option<u64> {
    let (store, _) = StateStore::open_backend(backend.clone(), Path::new("d"), identity()).ok()?;
    let mut acknowledged = 0;
    for n in 0..3 {
        let group = [node(100 + n, 1), node(200 + n, 1), mark(100 + n, 1, 9)];
        if store.write(&group).is_err() {
            break;
        }
        acknowledged += 1;
    }
    Some(acknowledged)
}

#[test]
fn a_kill_between_any_two_writes_leaves_a_state_that_reopens_whole() {
    // A directory that has been used before, so that the first start is not the only one tried.
    let before = Cut::over(&[], u64::MAX);
    let (store, _) = StateStore::open_backend(before.clone(), Path::new("d"), identity()).unwrap();
    store.write(&[node(1, 1)]).unwrap();
    drop(store);
    let content = before.live_content();

    let whole = Cut::over(&content, u64::MAX);
    assert_eq!(life(&whole), Some(3));
    let operations = whole.0.used.load(Ordering::Relaxed);
    assert!(operations > 10, "{operations}");
    for budget in 0..operations {
        let cut = Cut::over(&content, budget);
        let acknowledged = life(&cut).unwrap_or(0);
        for image in [cut.live_content(), cut.durable_content()] {
            let backend = Cut::over(&image, u64::MAX);
            let (_store, restored) = StateStore::open_backend(backend, Path::new("d"), identity())
                .unwrap_or_else(|e| panic!("cut after {budget}: {e}"));
            assert!(restored.term > Term(5), "cut after {budget}");
            let has = |n: u64| restored.nodes.iter().find(|k| k.node.0 == n);
            assert!(has(1).is_some(), "cut after {budget}");
            for n in 0..3 {
                let pair = (has(100 + n), has(200 + n).is_some());
                match pair {
                    (Some(first), true) => assert_eq!(first.mark, Some(Term(9))),
                    (None, false) => assert!(n >= acknowledged, "cut after {budget}: {n}"),
                    _ => panic!("cut after {budget}: half of group {n}"),
                }
            }
        }
    }
}

#[test]
fn a_foreign_file_is_named_and_left_alone() {
    for content in [
        &b"# not a database, but somebody's notes\n"[..],
        &[0xff; 9000],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(DATABASE);
        std::fs::write(&file, content).unwrap();
        let error = StateStore::open(dir.path(), identity()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, StateError::Damaged { .. }), "{text}");
        assert!(text.contains(DATABASE), "{text}");
        assert_eq!(std::fs::read(&file).unwrap(), content);
    }
}

#[test]
fn a_damaged_file_is_an_error_or_reads_as_of_a_commit_but_never_as_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = StateStore::open(dir.path(), identity()).unwrap();
    let records: Vec<_> = (0..50).map(|n| node(n, n)).collect();
    store.write(&records).unwrap();
    drop(store);
    let file = dir.path().join(DATABASE);
    let content = std::fs::read(&file).unwrap();
    let mut refused = 0;
    let used = content.iter().rposition(|&b| b != 0).unwrap();
    for at in (0..used).step_by(used / 150 + 1) {
        if content[at] == 0 {
            continue;
        }
        let mut damaged = content.clone();
        damaged[at] ^= 0x5a;
        let backend = Cut::over(&damaged, u64::MAX);
        match StateStore::open_backend(backend, dir.path(), identity()) {
            Ok((_, restored)) => {
                let last = restored.nodes.len();
                assert!(last == 50 || last == 0, "byte {at}: {last} nodes");
                assert_eq!(restored.cluster, ClusterId(77), "byte {at}");
            }
            Err(StateError::Damaged { .. }) => refused += 1,
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_failed_write_stops_all_later_ones() {
    let backend = Cut::over(&[], u64::MAX);
    let (store, _) = StateStore::open_backend(backend.clone(), Path::new("d"), identity()).unwrap();
    let (tell, told) = std::sync::mpsc::sync_channel(16);
    let done = move |ids: &[snowskin_directory::event::PersistId], ok: bool| {
        for id in ids {
            tell.send((id.0, ok)).unwrap();
        }
    };
    let (journal, writer) = crate::journal::Journal::new(store, Box::new(done));
    let thread = std::thread::spawn(writer);
    let id = snowskin_directory::event::PersistId;
    assert_eq!(journal.write(id(1), node(1, 1)), Handed::Over);
    assert_eq!(told.recv().unwrap(), (1, true));
    backend.0.budget.store(0, Ordering::Relaxed);
    assert_eq!(journal.write(id(2), node(2, 1)), Handed::Over);
    assert_eq!(told.recv().unwrap(), (2, false));
    backend.0.budget.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(journal.write(id(3), node(3, 1)), Handed::Over);
    assert_eq!(told.recv().unwrap(), (3, false));
    drop(journal);
    thread.join().unwrap();
}
