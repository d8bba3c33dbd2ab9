//! What is on the wire stays as it is, and whatever comes is taken or refused without harm.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod samples;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use snowskin_proto::blocking::{FrameReader, FrameWriter};
use snowskin_proto::error::{DecodeError, FrameError};
use snowskin_proto::frame::{self, Decoder, Frame, HEADER_BYTES, Header, Kind};
use snowskin_proto::hello::{Hello, Welcome};
use snowskin_proto::message::{Closing, Message, ReadFailed};
use snowskin_proto::{
    ENGINE_REGIONS_MAX, EngineDescription, EngineNotified, EngineNotify, RANGE_SUMS_MAX, RangeRead,
    RangeRequest, RangeSums, RangeWrite, ReadHead, WriteDone,
};
use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::call::{Reply, Request};
use snowskin_types::checksum::PieceSums;
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::{BATCH_ITEMS_MAX, FRAME_BYTES_MAX, HELLO_BYTES_MAX};
use snowskin_types::link::{FromNode, ToNode};
use std::fmt::Debug;
use std::path::PathBuf;

const ID: u64 = 0x0102_0304_0506_0708;

fn encoded<M: Message>(message: &M) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::put(&mut out, ID, message).unwrap();
    out.to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes
        .chunks(32)
        .map(|line| line.iter().map(|b| format!("{b:02x}")).collect());
    lines.collect::<Vec<String>>().join("\n") + "\n"
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn vector(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors")
        .join(format!("{name}.hex"))
}

/// Runs a check on every sample of every message.
trait Visit {
    fn see<M: Message + PartialEq + Debug>(&mut self, name: &str, message: &M);
}

fn visit(visit: &mut impl Visit) {
    samples::hellos()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::welcomes()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::closings()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::requests()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::replies()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::from_node()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::to_node()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::writes()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::writes_done()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::reads()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::heads()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::reads_failed()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::range_reads()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::range_writes()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::range_sums()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::engine_descriptions()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::engine_notifies()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
    samples::engine_notified()
        .iter()
        .for_each(|(name, m)| visit.see(name, m));
}

fn decoded<M: Message>(bytes: &[u8]) -> Result<M, DecodeError> {
    let mut decoder = Decoder::new();
    decoder.open();
    let frame = decoder.next(&mut BytesMut::from(bytes)).unwrap().unwrap();
    assert_eq!(frame.id, ID);
    M::from_frame(frame)
}

#[test]
fn messages_of_earlier_builds_are_read_and_written_byte_for_byte() {
    struct Check(usize);
    impl Visit for Check {
        fn see<M: Message + PartialEq + Debug>(&mut self, name: &str, message: &M) {
            let text = std::fs::read_to_string(vector(name)).unwrap();
            let bytes = unhex(&text);
            assert_eq!(decoded::<M>(&bytes).as_ref(), Ok(message), "{name}");
            assert_eq!(hex(&encoded(message)), text, "{name}");
            self.0 += 1;
        }
    }
    let mut check = Check(0);
    visit(&mut check);
    let files = std::fs::read_dir(vector("x").parent().unwrap())
        .unwrap()
        .count();
    assert_eq!(files, check.0, "a committed vector is not tested any more");
}

/// Writes the vectors of new samples. Never touches one that exists: run it by name after adding a
/// sample, and commit the file.
#[test]
#[ignore = "writes files; run it by name after adding a sample"]
fn write_missing_vectors() {
    struct Write;
    impl Visit for Write {
        fn see<M: Message + PartialEq + Debug>(&mut self, name: &str, message: &M) {
            if !vector(name).exists() {
                std::fs::write(vector(name), hex(&encoded(message))).unwrap();
            }
        }
    }
    visit(&mut Write);
}

#[test]
fn fields_of_later_versions_are_ignored() {
    struct Check;
    impl Visit for Check {
        fn see<M: Message + PartialEq + Debug>(&mut self, name: &str, message: &M) {
            let mut body = BytesMut::new();
            message.encode_body(&mut body);
            // Field 1000: a number, then bytes, then a fixed 32-bit number.
            body.extend_from_slice(&[
                0xc0, 0x3e, 0x07, 0xc2, 0x3e, 0x02, 1, 2, 0xc5, 0x3e, 1, 2, 3, 4,
            ]);
            assert_eq!(
                M::decode_body(body.freeze()).as_ref(),
                Ok(message),
                "{name}"
            );
        }
    }
    visit(&mut Check);
}

#[test]
fn a_message_cut_at_any_byte_is_refused_or_another_message_but_never_a_panic() {
    struct Check;
    impl Visit for Check {
        fn see<M: Message + PartialEq + Debug>(&mut self, _: &str, message: &M) {
            let mut body = BytesMut::new();
            message.encode_body(&mut body);
            let body = body.freeze();
            for end in 0..body.len() {
                if let Ok(other) = M::decode_body(body.slice(..end)) {
                    assert_ne!(&other, message);
                }
            }
        }
    }
    visit(&mut Check);
}

#[test]
fn values_that_are_not_allowed_are_refused_with_their_code() {
    fn change(request: &Request, from: &[u8], to: &[u8]) -> DecodeError {
        let mut body = BytesMut::new();
        request.encode_body(&mut body);
        let at = body.windows(from.len()).position(|w| w == from).unwrap();
        body[at..at + from.len()].copy_from_slice(to);
        Request::decode_body(body.freeze()).unwrap_err()
    }
    let samples = samples::requests();
    let locate = &samples
        .iter()
        .find(|(name, _)| *name == "request-locate")
        .unwrap()
        .1;
    // The packed lengths 1, 2, 10.
    let empty = change(locate, &[3, 1, 2, 10], &[3, 0, 3, 10]);
    assert_eq!(empty.code(), Code::InvalidParams);
    assert!(empty.to_string().contains("empty"), "{empty}");
    let more = change(locate, &[3, 1, 2, 10], &[3, 1, 2, 11]);
    assert!(matches!(more, DecodeError::Count { .. }), "{more}");
    let tenant = change(locate, b"team-a", b"_eam-a");
    assert!(tenant.to_string().contains("tenant"), "{tenant}");
    let text = Failure::new(Code::Internal, Stage::Read, "x".repeat(100_000));
    let cut = ReadFailed::decode_body(body_of(&ReadFailed(text))).unwrap();
    assert!(cut.0.message.len() <= 8192);
}

fn body_of<M: Message>(message: &M) -> Bytes {
    let mut body = BytesMut::new();
    message.encode_body(&mut body);
    body.freeze()
}

#[test]
fn ranges_without_bytes_or_end_and_runs_without_bounds_are_refused() {
    fn refused<M: Message + Debug>(message: &M) {
        let error = M::decode_body(body_of(message)).unwrap_err();
        assert_eq!(error.code(), Code::InvalidParams, "{message:?}");
    }
    let range = samples::range_reads()[0].1.0;
    for (offset, len) in [(5, 0), (u64::MAX, 1), (2, u64::MAX)] {
        let request = RangeRequest {
            offset,
            len,
            ..range
        };
        refused(&RangeRead(request));
        refused(&RangeWrite(request));
    }
    for count in [0, RANGE_SUMS_MAX + 1] {
        refused(&RangeSums(PieceSums(vec![1; count].into())));
    }
}

#[test]
fn descriptions_of_engines_that_do_not_add_up_are_refused() {
    let good = samples::engine_descriptions()[0].1.clone();
    let refused = |description: EngineDescription| {
        let error = EngineDescription::decode_body(body_of(&description)).unwrap_err();
        assert_eq!(error.code(), Code::InvalidParams);
    };
    for (base, len) in [(0x1000, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let mut bad = good.clone();
        (bad.regions[0].base, bad.regions[0].len) = (base, len);
        refused(bad);
    }
    let mut many = good.clone();
    many.regions = vec![good.regions[0]; ENGINE_REGIONS_MAX + 1];
    refused(many);
    let mut portless = good;
    portless.data_port = 0;
    refused(portless);
}

#[test]
fn a_frame_full_of_empty_items_is_refused_before_it_unfolds() {
    // Eight million empty reservations in one frame: 16 MB on the wire, a gigabyte in memory.
    let count = FRAME_BYTES_MAX / 2 - 16;
    let mut inner = BytesMut::with_capacity(FRAME_BYTES_MAX);
    (0..count).for_each(|_| inner.extend_from_slice(&[0x2a, 0]));
    let mut body = BytesMut::from(&[0x0a][..]);
    let mut len = inner.len();
    while len >= 0x80 {
        body.extend_from_slice(&[(len & 0x7f) as u8 | 0x80]);
        len >>= 7;
    }
    body.extend_from_slice(&[len as u8]);
    body.extend_from_slice(&inner);
    let error = Request::decode_body(body.freeze()).unwrap_err();
    assert!(
        matches!(
            error,
            DecodeError::TooMany {
                max: BATCH_ITEMS_MAX,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_stranger_may_only_greet_and_only_briefly() {
    let next = |header: Header| {
        let mut input = BytesMut::from(&header.to_bytes()[..]);
        Decoder::new().next(&mut input)
    };
    let too_long = next(Header::new(Kind::Hello, HELLO_BYTES_MAX as u32 + 1, 0));
    assert!(matches!(too_long, Err(FrameError::TooLarge { .. })));
    let request = next(Header::new(Kind::Request, 10, 0));
    assert_eq!(request, Err(FrameError::NotHello { kind: 16 }));
    let http = Decoder::new().next(&mut BytesMut::from(&b"GET / HTTP/1.1\r\n\r\n"[..]));
    assert!(http.is_err());
    assert_eq!(next(Header::new(Kind::Hello, 10, 0)), Ok(None));
}

#[test]
fn the_numbers_of_kinds_and_the_header_are_frozen() {
    let numbers: Vec<u16> = Kind::ALL.iter().map(|kind| kind.number()).collect();
    let frozen = [
        1, 2, 3, 4, 5, 16, 17, 32, 33, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 64, 65, 66, 67,
    ];
    assert_eq!(numbers, frozen);
    for kind in Kind::ALL {
        assert_eq!(Kind::from_number(kind.number()), Some(*kind));
    }
    let header = Header {
        len: 0x0a0b_0c0d,
        kind: Kind::ReadHead,
        flags: 0x0102,
        id: ID,
    };
    let bytes = [0x0d, 0x0c, 0x0b, 0x0a, 51, 0, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1];
    assert_eq!(header.to_bytes(), bytes);
    assert_eq!(Header::parse(&bytes, usize::MAX), Ok(header));
}

#[test]
fn a_message_over_the_limit_is_not_sent() {
    let huge = Request::List {
        tenant: Default::default(),
        filter: snowskin_types::call::Filter::All,
        after: Some(vec![0; FRAME_BYTES_MAX]),
        limit: 1,
    };
    let mut out = BytesMut::from(&b"before"[..]);
    let error = frame::put(&mut out, 1, &huge).unwrap_err();
    assert_eq!(error.failure(Stage::Locate).code, Code::InvalidParams);
    assert_eq!(out, &b"before"[..]);
}

/// Every decoder on the same bytes.
fn decode_as_everything(body: &Bytes) {
    fn one<M: Message>(body: &Bytes) {
        if let Err(error) = M::decode_body(body.clone()) {
            assert!(!error.failure(Stage::Session).message.is_empty());
        }
    }
    one::<Hello>(body);
    one::<Welcome>(body);
    one::<Closing>(body);
    one::<Request>(body);
    one::<Reply>(body);
    one::<FromNode>(body);
    one::<ToNode>(body);
    one::<WriteRequest>(body);
    one::<WriteDone>(body);
    one::<ReadRequest>(body);
    one::<ReadHead>(body);
    one::<ReadFailed>(body);
    one::<RangeRead>(body);
    one::<RangeWrite>(body);
    one::<RangeSums>(body);
    one::<EngineDescription>(body);
    one::<EngineNotify>(body);
    one::<EngineNotified>(body);
}

fn all_bodies() -> Vec<Vec<u8>> {
    struct Collect(Vec<Vec<u8>>);
    impl Visit for Collect {
        fn see<M: Message + PartialEq + Debug>(&mut self, _: &str, message: &M) {
            self.0.push(body_of(message).to_vec());
        }
    }
    let mut collect = Collect(Vec::new());
    visit(&mut collect);
    collect.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        decode_as_everything(&body.into());
    }

    #[test]
    fn damaged_messages_never_panic(
        which in any::<prop::sample::Index>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let bodies = all_bodies();
        let mut body = bodies[which.index(bodies.len())].clone();
        for (at, byte) in damage {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = byte;
            }
        }
        decode_as_everything(&body.into());
    }

    #[test]
    fn random_streams_never_panic_and_keep_no_more_than_they_were_given(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 1..20),
        open in any::<bool>(),
    ) {
        let mut decoder = Decoder::new();
        if open {
            decoder.open();
        }
        let mut input = BytesMut::new();
        let mut given = 0;
        'stream: for part in parts {
            input.extend_from_slice(&part);
            given += part.len();
            loop {
                match decoder.next(&mut input) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => break 'stream,
                }
            }
            prop_assert!(input.capacity() <= 2 * given + 1024);
        }
    }

    #[test]
    fn frames_survive_any_split(sizes in proptest::collection::vec(1usize..40, 1..200)) {
        let samples = samples::replies();
        let mut stream = Vec::new();
        samples.iter().for_each(|(_, reply)| stream.extend_from_slice(&encoded(reply)));
        let mut decoder = Decoder::new();
        decoder.open();
        let (mut input, mut rest, mut got) = (BytesMut::new(), &stream[..], Vec::new());
        for size in sizes.iter().cycle() {
            let (part, later) = rest.split_at((*size).min(rest.len()));
            input.extend_from_slice(part);
            while let Some(frame) = decoder.next(&mut input).unwrap() {
                got.push(Reply::from_frame(frame).unwrap());
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let wanted: Vec<Reply> = samples.into_iter().map(|(_, reply)| reply).collect();
        prop_assert_eq!(got, wanted);
    }
}

#[test]
fn the_blocking_reader_and_writer_carry_frames_and_tell_the_end() {
    let mut writer = FrameWriter::new();
    for (_, hello) in samples::hellos() {
        frame::put(writer.buffer(), 4, &hello).unwrap();
    }
    frame::put_empty(writer.buffer(), 5, Kind::Ping);
    let mut wire = Vec::new();
    writer.flush(&mut wire).unwrap();
    assert!(writer.is_flushed());
    let (mut stream, mut reader) = (&wire[..], FrameReader::new());
    for (_, hello) in samples::hellos() {
        let frame = reader.read(&mut stream).unwrap();
        assert_eq!(Hello::from_frame(frame), Ok(hello));
    }
    reader.open();
    let ping = Frame {
        kind: Kind::Ping,
        flags: 0,
        id: 5,
        body: Bytes::new(),
    };
    assert_eq!(reader.read(&mut stream).unwrap(), ping);
    let end = reader.read(&mut stream).unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::UnexpectedEof);
    let mut garbage = &[0xff; HEADER_BYTES][..];
    let error = FrameReader::new().read(&mut garbage).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
}
