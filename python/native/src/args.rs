//! Arguments: keys and numbers, alone and in lists, taken apart without objects in between.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

/// A key: `str` or `bytes`.
#[derive(Clone, Copy)]
pub(crate) struct KeyArg<'a>(pub(crate) &'a [u8]);

impl<'a, 'py> FromPyObject<'a, 'py> for KeyArg<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        key_bytes(object).map(KeyArg)
    }
}

/// A flag: None, or anything that knows whether it is true (`bool`, numbers, numpy's too).
pub(crate) fn truth(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_none() || object.get_type().hasattr("__bool__")? {
        return object.is_truthy();
    }
    Err(wrong("a bool is needed", object))
}

fn key_bytes<'a>(object: Borrowed<'a, '_, PyAny>) -> PyResult<&'a [u8]> {
    if object.is_instance_of::<PyString>() {
        let text: &'a str = object.extract().map_err(|_| {
            PyTypeError::new_err("a key that is str must be encodable as UTF-8; use bytes")
        })?;
        return Ok(text.as_bytes());
    }
    object
        .extract::<&'a [u8]>()
        .map_err(|_| wrong("a key must be str or bytes", &object))
}

fn wrong(what: &str, object: &Bound<'_, PyAny>) -> PyErr {
    let name = object.get_type().name();
    let name = name.map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{what}, not {name}"))
}

/// Keys of a call, packed back to back.
#[derive(Debug, Default)]
pub(crate) struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The keys in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let key = &self.bytes[start..*end];
            start = *end;
            key
        })
    }

    /// The keys in order.
    pub(crate) fn to_vec(&self) -> Vec<&[u8]> {
        self.iter().collect()
    }
}

impl<'py> FromPyObject<'_, 'py> for KeyList {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let mut keys = KeyList::default();
        each(&object, |key| {
            keys.bytes.extend_from_slice(key_bytes(key.as_borrowed())?);
            keys.ends.push(keys.bytes.len());
            Ok(())
        })?;
        Ok(keys)
    }
}

/// A size or an address: an integer of 0 to 2^64-1; anything else is a `TypeError`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl<'py> FromPyObject<'_, 'py> for Size {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        number(&object).map(Size)
    }
}

/// See [`Size`].
pub(crate) fn number(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    // The way of a signed machine word is several times faster, and almost all numbers fit.
    match object.extract::<i64>() {
        Ok(word) if word >= 0 => Ok(word.cast_unsigned()),
        _ => any_number(object),
    }
}

#[cold]
fn any_number(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    object.extract::<u64>().map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(object.py()) {
            PyTypeError::new_err("an integer must be between 0 and 2**64 - 1")
        } else {
            wrong("an integer is needed", object)
        }
    })
}

/// Many sizes or addresses.
#[derive(Debug, Default)]
pub(crate) struct SizeList(pub(crate) Vec<u64>);

impl<'py> FromPyObject<'_, 'py> for SizeList {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let mut sizes = Vec::new();
        each(&object, |size| {
            sizes.push(number(size)?);
            Ok(())
        })?;
        Ok(SizeList(sizes))
    }
}

/// Visits the items of a list, a tuple or another iterable that is no text.
pub(crate) fn each<'py>(
    object: &Bound<'py, PyAny>,
    mut visit: impl FnMut(&Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().try_for_each(|item| visit(&item));
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter_borrowed().try_for_each(|item| visit(&item));
    }
    let is_text = object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>();
    if is_text || object.is_instance_of::<PyDict>() {
        return Err(wrong("a list is needed", object));
    }
    let items = object
        .try_iter()
        .map_err(|_| wrong("a list is needed", object))?;
    for item in items {
        visit(&item?)?;
    }
    Ok(())
}

/// The items of a list of lists, to walk several of them side by side.
pub(crate) fn items<'py>(object: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut items = Vec::new();
    each(object, |item| {
        items.push(item.clone());
        Ok(())
    })?;
    Ok(items)
}
