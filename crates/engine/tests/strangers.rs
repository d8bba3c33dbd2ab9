//! What strangers may do at a session port: be told, be left, and nothing else.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use bytes::BytesMut;
use snowskin_engine::Engine;
use snowskin_proto::blocking::FrameReader;
use snowskin_proto::frame::{self, Frame, Header, Kind};
use snowskin_proto::hello::{FEATURE_ENGINE, Greeting, Hello, Role, Welcome};
use snowskin_proto::message::{Closing, Message};
use snowskin_proto::{EngineDescription, EngineNotify};
use snowskin_types::error::Code;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::*;

struct Raw {
    stream: TcpStream,
    reader: FrameReader,
}

impl Raw {
    fn connect(engine: &Engine) -> Self {
        let stream = TcpStream::connect(engine.session_id()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Raw {
            stream,
            reader: FrameReader::new(),
        }
    }

    fn greet(&mut self, features: u64) -> Frame {
        let mut out = BytesMut::new();
        let greeting = Greeting::new(Role::Client, 9).with_features(features);
        frame::put(&mut out, 0, &Hello(greeting)).unwrap();
        self.stream.write_all(&out).unwrap();
        self.reader.read(&mut self.stream).unwrap()
    }

    fn say(&mut self, out: &[u8]) -> Frame {
        self.stream.write_all(out).unwrap();
        self.reader.read(&mut self.stream).unwrap()
    }

    fn is_closed(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}

#[test]
fn who_is_no_engine_is_told_and_left() {
    let engine = engine();
    let mut raw = Raw::connect(&engine);
    let words = Closing::from_frame(raw.greet(0)).unwrap();
    assert_eq!(words.0.code, Code::NotSupported);
    assert!(raw.is_closed());
    let mut raw = Raw::connect(&engine);
    raw.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(raw.is_closed());
    assert_eq!(engine.counts().sessions_refused, 2);
    engine.probe(&engine.session_id()).unwrap();
}

#[test]
fn questions_of_other_kinds_or_without_bounds_end_the_session() {
    let engine = engine();
    let mut memory = Memory::canaries(4096);
    engine.register(&[memory.run()]).unwrap();
    let greeted = || {
        let mut raw = Raw::connect(&engine);
        Welcome::from_frame(raw.greet(FEATURE_ENGINE)).unwrap();
        raw.reader.open();
        raw
    };
    let mut raw = greeted();
    let mut ask = BytesMut::new();
    frame::put_empty(&mut ask, 7, Kind::EngineDescribe);
    for _ in 0..2 {
        let answer = raw.say(&ask);
        assert_eq!(answer.id, 7);
        let description = EngineDescription::from_frame(answer).unwrap();
        assert_eq!(description.regions.len(), 1);
        assert_eq!(description.regions[0].base, memory.remote());
    }
    let mut ask = BytesMut::new();
    frame::put_empty(&mut ask, 8, Kind::Waiting);
    let words = Closing::from_frame(raw.say(&ask)).unwrap();
    assert_eq!(words.0.code, Code::NotSupported);
    assert!(raw.is_closed());
    let mut raw = greeted();
    let huge = Header::new(Kind::EngineNotify, 16 << 20, 9).to_bytes();
    raw.stream.write_all(&huge).unwrap();
    raw.stream.write_all(&[0; 100]).unwrap();
    assert!(raw.is_closed());
    // A notification that cannot be read is answered, and the session goes on.
    let mut raw = greeted();
    let mut bad = BytesMut::new();
    bad.extend_from_slice(&Header::new(Kind::EngineNotify, 2, 10).to_bytes());
    bad.extend_from_slice(&[0xff, 0xff]);
    assert_eq!(raw.say(&bad).kind, Kind::EngineNotified);
    let mut good = BytesMut::new();
    let notify = EngineNotify {
        name: "n".to_owned(),
        message: "m".to_owned(),
    };
    frame::put(&mut good, 11, &notify).unwrap();
    assert_eq!(raw.say(&good).id, 11);
    assert_eq!(engine.notifies().len(), 1);
}
