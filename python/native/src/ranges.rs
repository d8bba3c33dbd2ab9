//! Ranges of objects into registered buffers: the nested lists of `get_into_ranges`.

use crate::args::{KeyList, SizeList, items};
use crate::calls::Want;
use crate::errors::{invalid, read_number};
use crate::open::{Open, mismatch};
use pyo3::prelude::*;
use snowskin_device::Run;
use snowskin_types::{Code, Failure, Stage};

/// One list of numbers per key.
type PerKey = Vec<Vec<u64>>;
/// The results, in the shape of the offsets in the buffers.
pub(crate) type Results = Vec<Vec<Vec<i64>>>;

const REFUSED: i64 = Code::InvalidParams.number() as i64;

/// What a call asks for.
pub(crate) struct Asked {
    buffers: Vec<u64>,
    keys: Vec<KeyList>,
    targets: Vec<PerKey>,
    sources: Vec<PerKey>,
    sizes: Vec<PerKey>,
}

fn nested(object: &Bound<'_, PyAny>) -> PyResult<Vec<PerKey>> {
    let per_key = |object: &Bound<'_, PyAny>| {
        let lists = items(object)?;
        lists
            .iter()
            .map(|list| Ok(list.extract::<SizeList>()?.0))
            .collect::<PyResult<PerKey>>()
    };
    items(object)?.iter().map(per_key).collect()
}

/// A range that is read.
struct Fragment {
    at: (usize, usize, usize),
    run: Run,
    offset: u64,
}

impl Asked {
    /// Reads the arguments.
    ///
    /// # Errors
    /// `TypeError` for anything but nested lists.
    pub(crate) fn read(
        buffers: Vec<u64>,
        keys: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        sources: &Bound<'_, PyAny>,
        sizes: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let keys = items(keys)?;
        let keys = keys.iter().map(|keys| keys.extract::<KeyList>());
        Ok(Asked {
            buffers,
            keys: keys.collect::<PyResult<_>>()?,
            targets: nested(targets)?,
            sources: nested(sources)?,
            sizes: nested(sizes)?,
        })
    }

    /// All refused.
    pub(crate) fn refused(&self) -> Results {
        let per_key = |lists: &PerKey| lists.iter().map(|list| vec![REFUSED; list.len()]).collect();
        self.targets.iter().map(per_key).collect()
    }

    /// Reads what can be read; also the first failure.
    pub(crate) fn carry_out(&self, open: &Open) -> (Results, Option<Failure>) {
        let mut results = self.refused();
        let mut failure = None;
        let count = self.buffers.len();
        let lens = [
            self.keys.len(),
            self.targets.len(),
            self.sources.len(),
            self.sizes.len(),
        ];
        if lens.iter().any(|len| *len != count) {
            return (results, Some(mismatch()));
        }
        let mut fragments: Vec<Fragment> = Vec::new();
        let mut whose: Vec<&[u8]> = Vec::new();
        for (buffer, address) in self.buffers.iter().enumerate() {
            let address = usize::try_from(*address).unwrap_or(usize::MAX);
            let capacity = open.registry.capacity_at(address);
            for (index, key) in self.keys[buffer].iter().enumerate() {
                match self.fragments_of((buffer, index), address, capacity) {
                    Ok(found) => {
                        whose.extend(found.iter().map(|_| key));
                        fragments.extend(found);
                    }
                    Err(refusal) => failure = failure.or(Some(refusal)),
                }
            }
        }
        let runs: Vec<[Run; 1]> = fragments.iter().map(|fragment| [fragment.run]).collect();
        let wants: Vec<Want<'_>> = fragments
            .iter()
            .zip(&runs)
            .zip(&whose)
            .map(|((fragment, runs), key)| Want {
                key,
                runs,
                offset: fragment.offset,
                len: fragment.run.len,
            })
            .collect();
        for (fragment, read) in fragments.iter().zip(open.get_wants(&wants)) {
            let (buffer, key, nth) = fragment.at;
            let slot = results
                .get_mut(buffer)
                .and_then(|keys| keys.get_mut(key))
                .and_then(|list| list.get_mut(nth));
            let result = match read {
                Ok(len) => i64::try_from(len).unwrap_or(i64::MAX),
                Err(error) => {
                    let number = read_number(&error);
                    failure = failure.or(Some(error));
                    number
                }
            };
            if let Some(slot) = slot {
                *slot = result;
            }
        }
        (results, failure)
    }

    /// The ranges of one key of one buffer; those that lie outside of the buffer are left out, and so
    /// stay refused.
    fn fragments_of(
        &self,
        (buffer, key): (usize, usize),
        address: usize,
        capacity: Option<u64>,
    ) -> Result<Vec<Fragment>, Failure> {
        let list = |lists: &[PerKey]| {
            let lists = lists.get(buffer).and_then(|lists| lists.get(key));
            lists.cloned().ok_or_else(mismatch)
        };
        let (targets, sources, sizes) = (
            list(&self.targets)?,
            list(&self.sources)?,
            list(&self.sizes)?,
        );
        if targets.len() != sources.len() || targets.len() != sizes.len() {
            return Err(mismatch());
        }
        let Some(capacity) = capacity else {
            let text = format!("the buffer at {address:#x} is not registered");
            return Err(invalid(Stage::Read, text));
        };
        let mut fragments = Vec::with_capacity(targets.len());
        for (nth, ((target, source), size)) in targets.iter().zip(&sources).zip(&sizes).enumerate()
        {
            let fits = target.checked_add(*size).is_some_and(|end| end <= capacity);
            if fits && *size > 0 {
                fragments.push(Fragment {
                    at: (buffer, key, nth),
                    run: Run {
                        // Within the region, which fits.
                        address: address + *target as usize,
                        len: *size,
                    },
                    offset: *source,
                });
            }
        }
        Ok(fragments)
    }
}
