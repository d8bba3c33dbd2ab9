//! Disks in a scratch directory.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use snowskin_memory::buffer::{Buffer, DIRECT_IO_ALIGN};
use snowskin_runtime::disk::pool::{Pool, PoolOptions};
use snowskin_runtime::disk::{Action, Disk, Ended, Job, Kind, Root, Trouble};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

fn start(directory: &tempfile::TempDir, threads: usize, queue: usize) -> Pool {
    let root = Root::open(directory.path()).unwrap();
    Pool::start(root, PoolOptions { threads, queue }).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn begin(pool: &Pool, name: &str, action: Action) -> Receiver<Ended> {
    let (tell, told) = sync_channel(1);
    let job = Job {
        name: name.into(),
        action,
    };
    let then = Box::new(move |ended| {
        tell.send(ended).ok();
    });
    pool.submit(job, then).unwrap();
    told
}

fn run(pool: &Pool, name: &str, action: Action) -> Ended {
    begin(pool, name, action)
        .recv_timeout(Duration::from_secs(60))
        .unwrap()
}

fn buffer(blocks: usize, value: u8) -> Buffer {
    let mut buffer = Buffer::zeroed(blocks * 4096, DIRECT_IO_ALIGN).unwrap();
    buffer.fill(value);
    buffer
}

#[test]
fn files_are_made_written_read_synced_listed_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let pool = start(&directory, 2, 16);
    println!("direct: {:?}, {}", pool.root().direct(), pool.io());
    let bytes = 1 << 20;
    assert!(run(&pool, "a", Action::Create { bytes }).result.is_ok());
    let again = run(&pool, "a", Action::Create { bytes });
    assert!(again.result.is_err(), "it exists");
    let (offset, data) = (8192, buffer(3, 7));
    assert!(
        run(&pool, "a", Action::Write { offset, data })
            .result
            .is_ok()
    );
    assert!(run(&pool, "a", Action::Sync).result.is_ok());
    let (offset, into) = (4096, buffer(5, 1));
    let read = run(&pool, "a", Action::Read { offset, into });
    read.result.unwrap();
    let got = read.buffer.unwrap();
    assert!(got[..4096].iter().all(|b| *b == 0));
    assert!(got[4096..4 * 4096].iter().all(|b| *b == 7));
    let listed = pool.root().list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].kind, listed[0].bytes), (Kind::File, bytes));
    let space = pool.root().space().unwrap();
    assert!(space.free <= space.total && space.total > 0);
    assert!(run(&pool, "a", Action::Delete).result.is_ok());
    assert!(pool.root().list().unwrap().is_empty());
    pool.close(soon()).unwrap();
}

#[test]
fn reads_behind_the_end_are_errors_that_give_the_buffer_back() {
    let directory = tempfile::tempdir().unwrap();
    let pool = start(&directory, 1, 16);
    run(&pool, "a", Action::Create { bytes: 8192 })
        .result
        .unwrap();
    let (offset, into) = (4096, buffer(2, 0));
    let short = run(&pool, "a", Action::Read { offset, into });
    let error = short.result.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Other);
    assert!(error.to_string().starts_with("read \"a\": "), "{error}");
    assert_eq!(short.buffer.unwrap().len(), 8192);
    pool.close(soon()).unwrap();
}

#[test]
fn links_and_other_directories_are_not_reached() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), vec![9; 4096]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(outside.path().join("secret"), &link).unwrap();
    std::fs::create_dir(directory.path().join("folder")).unwrap();
    let pool = start(&directory, 1, 16);
    for name in ["link", "folder", "..", "", "a/b", "folder/x"] {
        let (offset, into) = (0, buffer(1, 0));
        let read = run(&pool, name, Action::Read { offset, into });
        assert!(read.result.is_err(), "{name}");
        assert!(read.buffer.unwrap().iter().all(|b| *b == 0), "{name}");
        let made = run(&pool, name, Action::Create { bytes: 4096 });
        assert!(made.result.is_err(), "{name}");
    }
    let others = pool.root().list().unwrap();
    assert!(others.iter().all(|e| e.kind == Kind::Other));
    assert!(Root::open(&link).is_err(), "a root is no link");
    pool.close(soon()).unwrap();
}

#[test]
fn what_is_not_whole_blocks_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let pool = start(&directory, 1, 16);
    run(&pool, "a", Action::Create { bytes: 8192 })
        .result
        .unwrap();
    let odd = [
        (512, buffer(1, 0)),
        (0, Buffer::zeroed(512, DIRECT_IO_ALIGN).unwrap()),
        (0, Buffer::zeroed(4096, 512).unwrap()),
    ];
    for (offset, data) in odd {
        let error = run(&pool, "a", Action::Write { offset, data }).result;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("multiples of 4096"), "{text}");
    }
    pool.close(soon()).unwrap();
}

#[test]
fn a_creation_without_space_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let pool = start(&directory, 1, 16);
    // More than any disk here has.
    let made = run(&pool, "a", Action::Create { bytes: 1 << 50 });
    assert!(made.result.is_err());
    assert!(pool.root().list().unwrap().is_empty());
    pool.close(soon()).unwrap();
}

#[test]
fn requests_beyond_the_queue_are_given_back_and_the_rest_is_carried_out_before_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let pool = start(&directory, 1, 2);
    // The only thread is held in the end of the first request.
    let (open, gate) = sync_channel::<()>(1);
    let (tell, told) = sync_channel(1);
    let job = |name: &str| Job {
        name: name.into(),
        action: Action::Create { bytes: 4096 },
    };
    let held = Box::new(move |_: Ended| {
        tell.send(()).ok();
        gate.recv().ok();
    });
    pool.submit(job("first"), held).unwrap();
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    let bytes = 4096;
    let ends = ["b", "c"].map(|name| begin(&pool, name, Action::Create { bytes }));
    let refused = pool.submit(job("d"), Box::new(|_| {})).unwrap_err();
    assert_eq!(&*refused.job.name, "d");
    open.send(()).unwrap();
    pool.close(soon()).unwrap();
    for end in ends {
        assert!(end.recv().unwrap().result.is_ok());
    }
}
