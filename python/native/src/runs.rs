//! Address lists: the runs of memory of each key of a batch, flat.

use crate::args::{items, number};
use pyo3::prelude::*;
use pyo3::types::PyList;
use snowskin_device::Run;

/// Runs of memory by key.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    ends: Vec<usize>,
}

/// The lists of a call do not belong to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch;

impl Runs {
    /// One run per key.
    pub(crate) fn single(addresses: &[u64], sizes: &[u64]) -> Result<Self, Mismatch> {
        if addresses.len() != sizes.len() {
            return Err(Mismatch);
        }
        let runs: Vec<Run> = addresses.iter().zip(sizes).map(run_of).collect();
        Ok(Runs {
            ends: (1..=runs.len()).collect(),
            runs,
        })
    }

    /// Reads a list of lists of addresses and the same of sizes.
    ///
    /// # Errors
    /// `TypeError` for anything but lists of integers.
    pub(crate) fn read(
        addresses: &Bound<'_, PyAny>,
        sizes: &Bound<'_, PyAny>,
    ) -> PyResult<Result<Self, Mismatch>> {
        let (addresses, sizes) = (items(addresses)?, items(sizes)?);
        let mut good = addresses.len() == sizes.len();
        let mut all = Runs {
            runs: Vec::with_capacity(addresses.len()),
            ends: Vec::with_capacity(addresses.len()),
        };
        for (addresses, sizes) in addresses.iter().zip(&sizes) {
            good &= all.read_key(addresses, sizes)?;
        }
        Ok(if good { Ok(all) } else { Err(Mismatch) })
    }

    /// Reads the two lists of a key; false when they have different lengths.
    fn read_key(
        &mut self,
        addresses: &Bound<'_, PyAny>,
        sizes: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let mut good = true;
        if let (Ok(addresses), Ok(sizes)) = (addresses.cast::<PyList>(), sizes.cast::<PyList>()) {
            good = addresses.len() == sizes.len();
            self.runs.reserve(addresses.len());
            for (address, size) in addresses.iter().zip(sizes.iter()) {
                let pair = (number(&address)?, number(&size)?);
                self.runs.push(run_of((&pair.0, &pair.1)));
            }
        } else {
            let (addresses, sizes) = (items(addresses)?, items(sizes)?);
            good &= addresses.len() == sizes.len();
            for (address, size) in addresses.iter().zip(&sizes) {
                let pair = (number(address)?, number(size)?);
                self.runs.push(run_of((&pair.0, &pair.1)));
            }
        }
        self.ends.push(self.runs.len());
        Ok(good)
    }

    /// Keys.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Runs of each key in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[Run]> + '_ {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let runs = &self.runs[start..*end];
            start = *end;
            runs
        })
    }
}

fn run_of((address, len): (&u64, &u64)) -> Run {
    Run {
        // An address that the machine cannot have is one that is not mapped.
        address: usize::try_from(*address).unwrap_or(usize::MAX),
        len: *len,
    }
}

/// Bytes of a key's runs.
pub(crate) fn total(runs: &[Run]) -> u64 {
    runs.iter()
        .fold(0, |sum: u64, run| sum.saturating_add(run.len))
}
