use crate::peer::*;
use crate::start;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// HTTP connections that are open at once.
const SEATS: usize = 256;

fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks on a connection that stays open; the answer's first line and body come with one read or more.
fn ask(stream: &mut TcpStream) -> String {
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let (mut text, mut buffer) = (Vec::new(), [0; 1024]);
    while !text.ends_with(b"ok\n") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(text).unwrap()
}

/// Waits for the end of a connection that the master closes.
fn wait_end(stream: &mut TcpStream) {
    match stream.read(&mut [0; 64]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}

#[test]
fn a_request_takes_the_seat_of_the_oldest_silent_stranger() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let port = master.http().unwrap();
    let mut silent: Vec<_> = (0..SEATS).map(|_| dial(port)).collect();
    // The oldest but one asks, and then stands last in the queue with its next request.
    assert!(ask(&mut silent[1]).starts_with("HTTP/1.1 200"));
    let begin = Instant::now();
    let mut first = dial(port);
    assert!(ask(&mut first).starts_with("HTTP/1.1 200"));
    assert!(begin.elapsed() < Duration::from_secs(4));
    wait_end(&mut silent[0]);
    let mut second = dial(port);
    assert!(ask(&mut second).starts_with("HTTP/1.1 200"));
    wait_end(&mut silent[2]);
    for open in [1, 3, SEATS - 1] {
        assert!(ask(&mut silent[open]).starts_with("HTTP/1.1 200"), "{open}");
    }
    assert!(ask(&mut first).starts_with("HTTP/1.1 200"));
    let refused = metric(&http(port, "/metrics").1, "snowskin_http_refused_total");
    assert_eq!(refused, 3, "two seats above, and that of this request");
    master.shutdown().unwrap();
}

#[test]
fn a_stranger_that_sends_no_whole_request_is_left_soon() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let begin = Instant::now();
    let mut half = dial(master.http().unwrap());
    half.write_all(b"GET /livez HTTP/1.1\r\nHost:").unwrap();
    wait_end(&mut half);
    let took = begin.elapsed();
    assert!((4..9).contains(&took.as_secs()), "{took:?}");
    master.shutdown().unwrap();
}
