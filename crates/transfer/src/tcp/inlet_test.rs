use super::*;
use snowskin_proto::frame::{put, put_empty};
use snowskin_proto::hello::{Greeting, Hello, Role};
use std::io::Read;

/// A stream that gives at most `step` bytes a read.
struct Drip<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl Drip<'_> {
    fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let len = self.step.min(self.bytes.len());
        let got = (&self.bytes[..len]).read_vectored(slices)?;
        self.bytes = &self.bytes[got..];
        Ok(got)
    }
}

#[test]
fn frames_and_payload_are_taken_apart_at_any_split() {
    let mut stream = BytesMut::new();
    put(&mut stream, 0, &Hello(Greeting::new(Role::Client, 9))).unwrap();
    let payload: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    for part in payload.chunks(7_000) {
        let header = Header::new(Kind::Payload, part.len() as u32, 5);
        stream.extend_from_slice(&header.to_bytes());
        stream.extend_from_slice(part);
    }
    put_empty(&mut stream, 6, Kind::Ping);
    let large = vec![1u8; 700_000];
    stream.extend_from_slice(&Header::new(Kind::Request, 700_000, 7).to_bytes());
    stream.extend_from_slice(&large);
    for step in [1, 3, 15, 16, 17, 1000, 4096, 100_000, usize::MAX] {
        let mut inlet = Inlet::new();
        let mut drip = Drip {
            bytes: &stream,
            step,
        };
        let mut memory = vec![0xA5; payload.len() + 64];
        let (head, tail) = memory.split_at_mut(12_345);
        let mut target = TargetSlices::of_all([head, &mut tail[..payload.len() - 12_345]]);
        let (mut kinds, mut seen) = (Vec::new(), Vec::new());
        while !(drip.bytes.is_empty() && inlet.is_idle()) {
            if inlet.payload_left() > 0 {
                inlet
                    .payload(
                        &mut target,
                        |run| seen.extend_from_slice(run),
                        |s| drip.read(s),
                    )
                    .unwrap();
                continue;
            }
            match inlet.next().unwrap() {
                Some(Incoming::Frame(frame)) => {
                    inlet.open();
                    kinds.push((frame.kind, frame.id, frame.body.len()));
                }
                Some(Incoming::Payload { id }) => assert_eq!(id, 5),
                None => {
                    inlet.fill(|s| drip.read(s)).unwrap();
                }
            }
        }
        assert_eq!(target.remaining(), 0, "{step}");
        drop(target);
        assert_eq!(memory[..payload.len()], payload, "{step}");
        assert!(
            memory[payload.len()..].iter().all(|byte| *byte == 0xA5),
            "{step}"
        );
        assert_eq!(seen, payload, "{step}");
        let names: Vec<_> = kinds.iter().map(|(kind, id, _)| (*kind, *id)).collect();
        assert_eq!(
            names,
            [(Kind::Hello, 0), (Kind::Ping, 6), (Kind::Request, 7)],
            "{step}"
        );
        assert_eq!(kinds[2].2, large.len());
    }
}

#[test]
fn payload_that_nobody_wants_is_skipped_without_memory() {
    let mut stream = BytesMut::new();
    stream.extend_from_slice(&Header::new(Kind::Payload, 100_000, 5).to_bytes());
    stream.extend_from_slice(&vec![3; 100_000]);
    put_empty(&mut stream, 6, Kind::Ping);
    let mut inlet = Inlet::new();
    inlet.open();
    let mut drip = Drip {
        bytes: &stream,
        step: 5000,
    };
    loop {
        if inlet.payload_left() > 0 {
            assert!(inlet.skip(|s| drip.read(s)).unwrap() > 0);
        } else {
            match inlet.next().unwrap() {
                Some(Incoming::Frame(frame)) => break assert_eq!(frame.kind, Kind::Ping),
                Some(Incoming::Payload { .. }) => {}
                None => assert!(inlet.fill(|s| drip.read(s)).unwrap() > 0),
            }
        }
    }
    assert!(inlet.is_idle());
}

#[test]
fn a_stranger_cannot_announce_more_than_a_hello() {
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 64],
        &[0; 64],
    ] {
        let mut inlet = Inlet::new();
        let mut drip = Drip {
            bytes: garbage,
            step: 64,
        };
        inlet.fill(|s| drip.read(s)).unwrap();
        assert!(inlet.next().is_err(), "{garbage:?}");
    }
}
