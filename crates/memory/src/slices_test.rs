use std::io::{self, Read, Write};

use super::*;
use crate::segment::{PeerAccess, Segment};

/// Takes or brings at most `most` bytes a call, over as many slices as that needs.
struct Trickle {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(self.most);
        self.bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut left = self.most;
        for slice in slices {
            let len = slice.len().min(left);
            self.bytes.extend_from_slice(&slice[..len]);
            left -= len;
        }
        Ok(self.most - left)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Trickle {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let len = target.len().min(self.most).min(self.bytes.len());
        target[..len].copy_from_slice(&self.bytes[..len]);
        self.bytes.drain(..len);
        Ok(len)
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let most = self.most;
        let mut done = 0;
        for slice in slices {
            let len = slice.len().min(most - done);
            done += self.read(&mut slice[..len])?;
        }
        Ok(done)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 % 253) as u8).collect()
}

fn segment() -> Segment {
    Segment::shared("slices", 1 << 20, PeerAccess::Read).unwrap()
}

#[test]
fn a_list_is_written_and_read_across_partial_calls() {
    let extents = [(10, 100), (5000, 0), (4096, 1), (70_000, 3333), (9, 1)];
    let bytes = pattern(100 + 1 + 3333 + 1);
    for most in [1, 2, 99, 100, 101, 4000] {
        let segment = segment();
        let mut target = segment.target(extents).unwrap();
        let mut input = Trickle {
            bytes: bytes.clone(),
            most,
        };
        while target.remaining() > 0 {
            assert!(target.read_from(&mut input).unwrap() > 0);
        }
        let mut filled = Vec::new();
        target.visit_filled(|run| filled.extend_from_slice(run));
        assert_eq!(filled, bytes);
        drop(target);
        let mut source = segment.source(extents).unwrap();
        let mut output = Trickle {
            bytes: Vec::new(),
            most,
        };
        while source.remaining() > 0 {
            assert!(source.write_to(&mut output).unwrap() > 0);
        }
        assert_eq!(output.bytes, bytes, "{most}");
    }
}

#[test]
fn the_first_pending_bytes_are_shown_from_the_position_on() {
    let runs: Vec<Vec<u8>> = vec![vec![1; 5], vec![2; 200], vec![], vec![3; 7]];
    let bytes = runs.concat();
    let mut source = SourceSlices::of_all(runs.iter().map(Vec::as_slice));
    for at in [0usize, 3, 5, 100, 205, 212] {
        source.rewind(u64::MAX);
        source.advance(at as u64);
        for limit in [0, 1, 2, 150, 205, u64::MAX] {
            let mut seen = Vec::new();
            source.visit_first(limit, |run| seen.extend_from_slice(run));
            let end = bytes.len().min(at.saturating_add(limit as usize));
            assert_eq!(seen, bytes[at..end], "{at} {limit}");
        }
    }
}

#[test]
fn receiving_leaves_the_bytes_around_extents_alone() {
    let segment = segment();
    segment.write_at(0, &[0xA5; 4096]).unwrap();
    let mut target = segment.target([(100, 50), (200, 50)]).unwrap();
    assert_eq!(target.fill_from(&[1; 200]), 100);
    drop(target);
    let mut seen = vec![0; 4096];
    segment.read_at(0, &mut seen).unwrap();
    for (index, byte) in seen.iter().enumerate() {
        let inside = (100..150).contains(&index) || (200..250).contains(&index);
        assert_eq!(*byte, if inside { 1 } else { 0xA5 }, "{index}");
    }
}

#[test]
fn a_limit_cuts_the_slices_lent() {
    let bytes = pattern(1000);
    let source = SourceSlices::of_all([&bytes[..300], &bytes[300..]]);
    let lens = |limit| {
        source.with_slices(limit, |slices| {
            slices.iter().map(|slice| slice.len()).collect::<Vec<_>>()
        })
    };
    assert_eq!(lens(0), [0usize; 0]);
    assert_eq!(lens(300), [300]);
    assert_eq!(lens(301), [300, 1]);
    assert_eq!(lens(u64::MAX), [300, 700]);
    let mut room = vec![0; 1000];
    let mut target = TargetSlices::of(&mut room);
    let mut input: &[u8] = &bytes;
    assert_eq!(target.read_from_limited(&mut input, 7).unwrap(), 7);
    assert_eq!(target.remaining(), 993);
}

#[test]
fn a_header_travels_in_front_of_the_bytes() {
    let source = SourceSlices::of(b"body");
    let mut sent = Vec::new();
    source
        .with_slices_after(b"head", 2, |slices| sent.write_vectored(slices))
        .unwrap();
    assert_eq!(sent, b"headbo");
}

#[test]
fn more_extents_than_slices_take_several_calls() {
    let segment = segment();
    let extents: Vec<(u64, u64)> = (0..200).map(|index| (index * 4096, 3)).collect();
    let bytes = pattern(600);
    let mut target = segment.target(extents.clone()).unwrap();
    assert_eq!(
        target.with_slices(u64::MAX, |slices| slices.len()),
        IO_SLICES_MAX
    );
    let mut input: &[u8] = &bytes;
    while target.remaining() > 0 {
        target.read_from(&mut input).unwrap();
    }
    drop(target);
    let mut source = segment.source(extents).unwrap();
    let mut output = Vec::new();
    while source.remaining() > 0 {
        source.write_to(&mut output).unwrap();
    }
    assert_eq!(output, bytes);
}

#[test]
fn copies_between_lists_stop_at_the_shorter_one_and_go_on_later() {
    let bytes = pattern(3000);
    let segment = segment();
    let mut source = SourceSlices::of_all([&bytes[..1], &bytes[1..1700], &bytes[1700..]]);
    let mut first = segment.target([(0, 1000), (2000, 500)]).unwrap();
    assert_eq!(source.copy_to(&mut first), 1500);
    assert_eq!((source.remaining(), first.remaining()), (1500, 0));
    let mut second = segment.target([(8192, 5000)]).unwrap();
    assert_eq!(source.copy_to(&mut second), 1500);
    assert_eq!(second.remaining(), 3500);
    drop((first, second));
    let mut seen = Vec::new();
    let read = segment
        .source([(0, 1000), (2000, 500), (8192, 1500)])
        .unwrap();
    read.visit(|run| seen.extend_from_slice(run));
    assert_eq!(seen, bytes);
}

#[test]
fn a_list_outlives_the_segment_handle_and_moves_between_threads() {
    let segment = segment();
    segment.write_at(77, b"kept").unwrap();
    let source = segment.source([(77, 4)]).unwrap();
    drop(segment);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut seen = Vec::new();
            source.visit(|run| seen.extend_from_slice(run));
            seen
        });
        reader.join().unwrap()
    });
    assert_eq!(seen, b"kept");
}

#[test]
fn an_empty_list_lends_nothing() {
    let mut target = TargetSlices::of(&mut []);
    assert_eq!(
        (
            target.remaining(),
            target.with_slices(9, |slices| slices.len())
        ),
        (0, 0)
    );
    assert_eq!(SourceSlices::of(&[]).copy_to(&mut target), 0);
}

#[test]
fn a_list_that_was_moved_back_begins_again_at_the_same_byte() {
    let (first, second) = ([1u8, 2, 3], [4u8, 5, 6]);
    let mut source = SourceSlices::of_all([&first[..], &second[..]]);
    source.advance(5);
    source.rewind(4);
    let mut seen = Vec::new();
    source.visit(|run| seen.extend_from_slice(run));
    assert_eq!(seen, [2, 3, 4, 5, 6]);
    source.rewind(100);
    assert_eq!(source.remaining(), 6);
}
