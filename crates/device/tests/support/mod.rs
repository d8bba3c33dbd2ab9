//! The fake driver, built once per test program and seen from the side of the tests.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use libloading::os::unix::Library;

/// A build of the fake driver. Each has devices of its own.
pub struct Fake {
    library: Library,
    pub path: PathBuf,
}

impl Fake {
    /// Builds the library, with these flags of the C compiler.
    pub fn build(flags: &[&str]) -> Self {
        static BUILDS: AtomicUsize = AtomicUsize::new(0);
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fake-driver/fake_driver.c");
        let name = format!(
            "libfake_driver_{}_{}.so",
            std::process::id(),
            BUILDS.fetch_add(1, Ordering::Relaxed)
        );
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let status = Command::new("cc")
            .args([
                "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread", "-o",
            ])
            .arg(&path)
            .arg(source)
            .args(flags)
            .status()
            .expect("a C compiler named cc is needed");
        assert!(status.success());
        // SAFETY: the library has no initialisers.
        let library = unsafe { Library::new(&path) }.unwrap();
        Self { library, path }
    }

    fn call<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the callers below name the functions with their types in the C file.
        unsafe { *self.library.get::<F>(name.as_bytes()).unwrap() }
    }

    pub fn alloc(&self, len: usize, device: c_int) -> usize {
        let function: extern "C" fn(usize, c_int) -> usize = self.call("fake_device_alloc");
        let address = function(len, device);
        assert_ne!(address, 0);
        address
    }

    pub fn managed(&self, len: usize, device: c_int) -> usize {
        let function: extern "C" fn(usize, c_int) -> usize = self.call("fake_managed_alloc");
        function(len, device)
    }

    pub fn peek(&self, address: usize, len: usize) -> Vec<u8> {
        let function: unsafe extern "C" fn(usize, *mut u8, usize) -> c_int =
            self.call("fake_device_peek");
        let mut bytes = vec![0; len];
        // SAFETY: the vector has room for so many bytes.
        let code = unsafe { function(address, bytes.as_mut_ptr(), len) };
        assert_eq!(code, 0);
        bytes
    }

    pub fn poke(&self, address: usize, bytes: &[u8]) {
        let function: unsafe extern "C" fn(usize, *const u8, usize) -> c_int =
            self.call("fake_device_poke");
        // SAFETY: the slice has so many bytes.
        let code = unsafe { function(address, bytes.as_ptr(), bytes.len()) };
        assert_eq!(code, 0);
    }

    pub fn copies(&self) -> u64 {
        let function: extern "C" fn() -> u64 = self.call("fake_copies");
        function()
    }

    pub fn fail_next(&self, code: c_int) {
        let function: extern "C" fn(c_int) = self.call("fake_fail_next");
        function(code);
    }

    pub fn current(&self) -> c_int {
        let function: extern "C" fn() -> c_int = self.call("fake_current");
        function()
    }

    pub fn make_current(&self, device: c_int) {
        let function: extern "C" fn(c_int) = self.call("fake_make_current");
        function(device);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok();
    }
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| seed ^ (at % 251) as u8 ^ (at / 251 % 256) as u8)
        .collect()
}
