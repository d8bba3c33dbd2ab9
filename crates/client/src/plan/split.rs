//! Cuts large batches into requests that fit a frame.

use snowskin_types::limits::{BATCH_ITEMS_MAX, FRAME_BYTES_MAX};
use std::ops::Range;

/// Most items of one request. A quarter of what the protocol allows, so that an answer whose items
/// are longer than their keys (places, messages) fits its frame too.
pub const RUN_ITEMS_MAX: usize = BATCH_ITEMS_MAX / 4;
/// Most bytes of one request, by the same argument.
pub const RUN_BYTES_MAX: usize = FRAME_BYTES_MAX / 4;

/// Cuts items of the given encoded sizes into runs, each of which fits one request. Every run holds
/// at least one item.
pub fn runs(sizes: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let (mut start, mut end, mut bytes) = (0, 0, 0usize);
    for size in sizes {
        let full = end - start >= RUN_ITEMS_MAX || bytes.saturating_add(size) > RUN_BYTES_MAX;
        if end > start && full {
            out.push(start..end);
            (start, bytes) = (end, 0);
        }
        bytes = bytes.saturating_add(size);
        end += 1;
    }
    if end > start {
        out.push(start..end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_all_items_once_and_in_order() {
        let sizes: Vec<usize> = (0..40_000).map(|i| i * 7 % 3000).collect();
        let runs = runs(sizes.iter().copied());
        assert!(runs.len() > 1);
        let mut next = 0;
        for run in runs {
            assert_eq!(run.start, next);
            assert!(run.len() <= RUN_ITEMS_MAX && !run.is_empty());
            assert!(sizes[run.clone()].iter().sum::<usize>() <= RUN_BYTES_MAX);
            next = run.end;
        }
        assert_eq!(next, sizes.len());
    }

    #[test]
    fn an_item_above_the_limit_travels_alone() {
        assert_eq!(runs([10, RUN_BYTES_MAX + 1, 10]), vec![0..1, 1..2, 2..3]);
        assert!(runs([]).is_empty());
    }
}
