//! What is merged, where it is cut, and that no byte is lost or moved twice.

use super::*;
use snowskin_proto::{EngineAccess, EngineDescription, EngineRegion};
use snowskin_types::id::Epoch;

fn request(local: usize, remote: u64, len: u64) -> Request {
    Request { local, remote, len }
}

fn description(regions: &[(u64, u64)]) -> Description {
    let region = |(index, &(base, len)): (usize, &(u64, u64))| EngineRegion {
        base,
        len,
        region: index as u64 + 1,
        access: EngineAccess::Both,
    };
    Description::new(
        "h",
        EngineDescription {
            epoch: Epoch(1),
            data_port: 1,
            generation: 1,
            regions: regions.iter().enumerate().map(region).collect(),
        },
    )
}

fn run(address: usize, len: u64) -> Run {
    Run { address, len }
}

#[test]
fn neighbours_are_merged_at_the_peer_and_here() {
    let plan = Plan::new(&[
        request(100, 1000, 10),
        request(110, 1010, 5),
        request(500, 1015, 5),
        request(7, 0, 0),
        request(505, 2000, 5),
    ])
    .unwrap();
    assert_eq!(plan.bytes, 25);
    let chunks: Vec<_> = plan.chunks.iter().map(|c| (c.remote, c.len)).collect();
    assert_eq!(chunks, [(1000, 20), (2000, 5)]);
    assert_eq!(plan.runs, [run(100, 15), run(500, 5), run(505, 5)]);
    let known = description(&[(1000, 100), (2000, 100)]);
    let pieces: Vec<_> = plan.pieces(&known).collect();
    assert_eq!(pieces.len(), 2);
    assert_eq!((pieces[0].offset, pieces[0].len), (0, 20));
    assert_eq!(pieces[0].runs, [run(100, 15), run(500, 5)]);
    assert_eq!(pieces[1].runs, [run(505, 5)]);
}

#[test]
fn a_chunk_may_span_regions_only_where_they_touch() {
    let plan = Plan::new(&[request(100, 1090, 30)]).unwrap();
    let apart = description(&[(1000, 100), (1101, 100)]);
    assert_eq!(plan.outside(&apart).map(|chunk| chunk.remote), Some(1090));
    let touching = description(&[(1100, 15), (1000, 100), (1115, 100)]);
    assert_eq!(plan.outside(&touching), None);
    let pieces: Vec<_> = plan.pieces(&touching).collect();
    let cut: Vec<_> = pieces
        .iter()
        .map(|p| (p.region.0, p.offset, p.len, p.runs.clone()))
        .collect();
    assert_eq!(
        cut,
        [
            (2, 90, 10, vec![run(100, 10)]),
            (1, 0, 15, vec![run(110, 15)]),
            (3, 0, 5, vec![run(125, 5)]),
        ]
    );
}

#[test]
fn pieces_are_bounded_and_lose_no_byte() {
    let many: Vec<_> = (0..5000)
        .map(|i| request(0x10_0000 + i as usize * 32, 1 << 20 | (i * 16), 16))
        .chain([request(1 << 40, 1 << 30, 3 * PIECE_BYTES_MAX + 1)])
        .collect();
    let plan = Plan::new(&many).unwrap();
    let known = description(&[(0, 1 << 40)]);
    let pieces: Vec<_> = plan.pieces(&known).collect();
    assert_eq!(pieces.iter().map(|p| p.len).sum::<u64>(), plan.bytes);
    for piece in &pieces {
        assert!(piece.len <= PIECE_BYTES_MAX && piece.runs.len() <= PIECE_RUNS_MAX);
        assert_eq!(piece.runs.iter().map(|r| r.len).sum::<u64>(), piece.len);
    }
    let mut at = 1 << 20;
    for piece in pieces.iter().take_while(|piece| piece.remote < 1 << 30) {
        assert_eq!(piece.remote, at);
        at += piece.len;
    }
    assert_eq!(pieces.len(), 5 + 4);
}

#[test]
fn requests_that_cannot_be_are_refused_by_their_place() {
    for (bad, at) in [
        (vec![request(5, 5, 5), request(0, 5, 5)], 1),
        (vec![request(5, u64::MAX, 1)], 0),
        (vec![request(usize::MAX, 5, 1)], 0),
    ] {
        let error = Plan::new(&bad).unwrap_err();
        assert!(
            matches!(error, EngineError::Request { index, .. } if index == at),
            "{error}"
        );
        assert_eq!(error.number(), -1);
    }
    assert_eq!(Plan::new(&[]).unwrap().bytes, 0);
}
