//! Host memory for programs that want theirs from the store.

use crate::ending::released;
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::collections::HashMap;

use crate::args::Size;

/// Blocks start at a page.
const PAGE: usize = 4096;
/// Blocks of this process that were not freed, by address. They belong to the process, not to an allocator.
static BLOCKS: Mutex<Option<HashMap<usize, Vec<u8>>>> = Mutex::new(None);

/// Gives out zeroed, page-aligned memory of this process.
#[pyclass(frozen, module = "snowskin._native")]
pub(crate) struct MooncakeHostMemAllocator;

#[pymethods]
impl MooncakeHostMemAllocator {
    #[new]
    fn new() -> Self {
        MooncakeHostMemAllocator
    }

    /// Address of a fresh block; 0 when there is none to be had.
    fn alloc(&self, py: Python<'_>, size: Size) -> usize {
        released(py, || allocate(size.0)).unwrap_or(0)
    }

    /// Gives a block back: 0, or -1 when the address is none of a block.
    fn free(&self, py: Python<'_>, ptr: Size) -> i32 {
        let block = usize::try_from(ptr.0).ok().and_then(|address| {
            let mut blocks = BLOCKS.lock();
            blocks.as_mut().and_then(|blocks| blocks.remove(&address))
        });
        match block {
            Some(block) => {
                released(py, || drop(block));
                0
            }
            None => -1,
        }
    }
}

fn allocate(size: u64) -> Option<usize> {
    let size = usize::try_from(size).ok().filter(|size| *size > 0)?;
    let wanted = size.checked_add(PAGE)?;
    // A size that cannot be had is found out before it is asked for in earnest.
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(wanted).ok()?;
    drop(probe);
    // Zeroed by the system, page by page on use.
    let mut block = vec![0u8; wanted];
    let start = block.as_mut_ptr().expose_provenance();
    let address = start.next_multiple_of(PAGE);
    BLOCKS.lock().get_or_insert_default().insert(address, block);
    Some(address)
}
