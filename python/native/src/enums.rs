//! Enumerations that behave as the compatible interface's: made from an integer, converted to one,
//! equal only among themselves, hashable, picklable, with `__members__` in the order of definition.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

macro_rules! enumeration {
    ($(#[$doc:meta])* $name:ident, ordered { $($members:tt)* }) => {
        $(#[$doc])*
        #[pyclass(frozen, eq, ord, hash, module = "snowskin._native")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Hash)]
        pub(crate) struct $name(pub(crate) u32);

        enumeration!(@members $name { $($members)* });
    };
    ($(#[$doc:meta])* $name:ident { $($members:tt)* }) => {
        $(#[$doc])*
        #[pyclass(frozen, eq, hash, module = "snowskin._native")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) struct $name(pub(crate) u32);

        enumeration!(@members $name { $($members)* });
    };
    (@members $name:ident { $($member:ident = $value:literal),* $(,)? }) => {
        impl $name {
            const MEMBERS: &'static [(&'static str, u32)] = &[$((stringify!($member), $value)),*];

            /// The member's name.
            pub(crate) fn name_of(self) -> &'static str {
                let found = Self::MEMBERS.iter().find(|(_, value)| *value == self.0);
                found.map_or("???", |(name, _)| name)
            }

            /// Adds the class, with its members as attributes, to the module; returns the members.
            pub(crate) fn add<'py>(
                module: &Bound<'py, PyModule>,
            ) -> PyResult<Bound<'py, PyDict>> {
                let py = module.py();
                let members = PyDict::new(py);
                let class = py.get_type::<$name>();
                for (name, value) in Self::MEMBERS {
                    let member = Bound::new(py, $name(*value))?;
                    members.set_item(*name, &member)?;
                    class.setattr(*name, member)?;
                }
                module.add(stringify!($name), class)?;
                Ok(members)
            }
        }

        #[pymethods]
        impl $name {
            #[new]
            fn new(value: u32) -> Self {
                $name(value)
            }

            #[classattr]
            fn __members__(py: Python<'_>) -> PyResult<Py<PyDict>> {
                let members = PyDict::new(py);
                for (name, value) in Self::MEMBERS {
                    members.set_item(*name, Bound::new(py, $name(*value))?)?;
                }
                Ok(members.unbind())
            }

            #[getter]
            fn name(&self) -> &'static str {
                self.name_of()
            }

            #[getter]
            fn value(&self) -> u32 {
                self.0
            }

            fn __int__(&self) -> u32 {
                self.0
            }

            fn __index__(&self) -> u32 {
                self.0
            }

            fn __str__(&self) -> String {
                format!("{}.{}", stringify!($name), self.name_of())
            }

            fn __repr__(&self) -> String {
                format!("<{}.{}: {}>", stringify!($name), self.name_of(), self.0)
            }

            fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (u32,)) {
                (py.get_type::<$name>(), (self.0,))
            }
        }
    };
}

enumeration! {
    /// Advisory class of data.
    ObjectDataType {
        UNKNOWN = 0, KVCACHE = 1, TENSOR = 2, WEIGHT = 3, SAMPLE = 4, ACTIVATION = 5, GRADIENT = 6,
        OPTIMIZER_STATE = 7, METADATA = 8, GENERAL = 9,
    }
}

enumeration! {
    /// What a write asks of the soft pin.
    SoftPinAction { PRESERVE = 0, ENABLE = 1, DISABLE = 2 }
}

enumeration! {
    /// Life cycle of a replica.
    ReplicaStatus {
        UNDEFINED = 0, INITIALIZED = 1, PROCESSING = 2, COMPLETE = 3, REMOVED = 4, FAILED = 5,
    }
}

enumeration! {
    /// Kind of an asynchronous task.
    TaskType { REPLICA_COPY = 0, REPLICA_MOVE = 1 }
}

enumeration! {
    /// State of an asynchronous task.
    TaskStatus { PENDING = 0, PROCESSING = 1, SUCCESS = 3, FAILED = 2 }
}

enumeration! {
    /// Which way a transfer goes: from the peer, or to it.
    TransferOpcode, ordered { Read = 0, Write = 1 }
}

/// Adds all of them; the members of all but `SoftPinAction` also stand in the module, later ones over
/// earlier ones of the same name.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    SoftPinAction::add(module)?;
    let flat = [
        ObjectDataType::add(module)?,
        ReplicaStatus::add(module)?,
        TaskType::add(module)?,
        TaskStatus::add(module)?,
    ];
    for members in flat {
        for (name, member) in members {
            module.setattr(name.cast::<pyo3::types::PyString>()?, member)?;
        }
    }
    Ok(())
}
