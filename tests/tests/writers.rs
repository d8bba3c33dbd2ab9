//! Writers that die in the middle (case T14).
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_tests::calls::{exists, force, get, get_within, put_within};
use snowskin_tests::client::connect_to;
use snowskin_tests::cluster::{Master, Node, SHORT};
use snowskin_tests::process::{Process, run};
use snowskin_tests::proxy::Proxy;
use snowskin_tests::values::value;
use snowskin_tests::wait;
use snowskin_types::Code;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// T14.
#[test]
fn a_writer_killed_in_the_middle_leaves_nothing_behind() {
    let master = Master::start(SHORT);
    let proxy = Proxy::listen();
    let advertise = format!("--advertise={}", proxy.address);
    let mut node = Node::start(&master.address(), "64MiB", &[&advertise]);
    proxy.set_target(node.data);
    let client = connect_to(&master.address());
    client
        .put(
            "other",
            &value(b"other", MIB),
            &put_within(Duration::from_secs(3)),
        )
        .unwrap();
    let used = || client.stat(&Default::default()).unwrap().nodes[0].dram_used;
    wait::until("the use is told", Duration::from_secs(3), || used() > 0);
    let at_first = used();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("value");
    let bytes = value(b"k", 32 * MIB);
    std::fs::write(&file, &bytes).unwrap();
    proxy.slow(8 * MIB as u64);
    let before = proxy.passed();
    let mut writer = Process::start(&[
        "put".to_owned(),
        format!("--master={}", master.address()),
        "k".to_owned(),
        file.display().to_string(),
    ]);
    wait::until("half of it is written", Duration::from_secs(10), || {
        proxy.passed() - before > 16 * MIB as u64
    });
    assert!(!client.exists("k", &exists()).unwrap());
    writer.kill();
    proxy.slow(0);
    let killed = Instant::now();
    let start = Instant::now();
    assert!(!client.exists("k", &exists()).unwrap());
    let read = client.get("k", &get()).unwrap_err();
    assert!(
        matches!(read.code, Code::ObjectNotFound | Code::ReplicaNotReady),
        "{read}"
    );
    assert!(start.elapsed() < Duration::from_millis(500));
    // The limit of unfinished puts is 5 s; a broken write is told before it.
    let limit = Duration::from_secs(7);
    let again = value(b"again", 32 * MIB);
    wait::until("the key takes another value", limit, || {
        client
            .put("k", &again, &put_within(Duration::from_secs(3)))
            .is_ok()
    });
    assert!(killed.elapsed() < limit);
    assert!(
        client
            .get("k", &get_within(Duration::from_secs(5)))
            .unwrap()
            == again
    );
    // Were the torn write's 32 MiB still held, this would not fit beside 32 MiB under a lease.
    client
        .put(
            "beside",
            &value(b"beside", 20 * MIB),
            &put_within(Duration::from_secs(3)),
        )
        .unwrap();
    for key in ["k", "beside"] {
        client.remove(key, &force(Duration::from_secs(5))).unwrap();
    }
    wait::until("the space is back", Duration::from_secs(5), || {
        used() == at_first
    });
    let stat = client.stat(&Default::default()).unwrap();
    assert_eq!((stat.objects, stat.unfinished), (1, 0));
    assert!(client.get("other", &get()).unwrap() == value(b"other", MIB));
    assert!(node.process.running());
    let master = format!("--master={}", master.address());
    assert_eq!(run(&["audit", "--json", &master]).status.code(), Some(0));
}
