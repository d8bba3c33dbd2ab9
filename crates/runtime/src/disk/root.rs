//! The directory of a disk and the system calls on its files.

use super::{Action, BLOCK_BYTES, DiskError, Ended, Job};
use parking_lot::Mutex;
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use snowskin_memory::buffer::{Buffer, DIRECT_IO_ALIGN};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Files kept open for the next request.
const OPEN_FILES_MAX: usize = 512;

/// Whether transfers go past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// They do.
    Yes,
    /// The file system does not take direct I/O; to be announced.
    No,
}

/// What a directory entry is; links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// Anything else.
    Other,
}

/// An entry of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Space of the file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What this process may still take.
    pub free: u64,
    /// All there is.
    pub total: u64,
}

/// An open directory.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    direct: Direct,
    files: Mutex<BTreeMap<Box<str>, Arc<OwnedFd>>>,
}

impl Root {
    /// Opens an existing directory, which must not be a symbolic link, and finds out whether its file
    /// system takes direct I/O.
    ///
    /// # Errors
    /// When it is missing, is no directory, or cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::open(path, flags, Mode::empty())?;
        let direct = try_direct(&directory);
        Ok(Root {
            directory,
            direct,
            files: Mutex::default(),
        })
    }

    /// Whether transfers go past the page cache.
    pub fn direct(&self) -> Direct {
        self.direct
    }

    /// Everything in the directory, in no order.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::Dir::read_from(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Kind::File,
                _ => Kind::Other,
            };
            entries.push(Entry {
                name: name.to_bytes().to_vec(),
                kind,
                bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            });
        }
        Ok(entries)
    }

    /// Space of the file system.
    ///
    /// # Errors
    /// When it does not tell.
    pub fn space(&self) -> io::Result<Space> {
        let stat = fs::fstatvfs(&self.directory)?;
        Ok(Space {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }

    /// Carries a request out, on the caller's thread.
    pub(super) fn carry_out(&self, job: Job) -> Ended {
        let Job { name, action } = job;
        let (verb, result, buffer) = match action {
            Action::Create { bytes } => ("create", self.create(&name, bytes), None),
            Action::Write { offset, data } => {
                ("write", self.write(&name, offset, &data), Some(data))
            }
            Action::Read { offset, mut into } => {
                ("read", self.read(&name, offset, &mut into), Some(into))
            }
            Action::Sync => ("sync", self.sync(&name), None),
            Action::Delete => ("delete", self.delete(&name), None),
        };
        let result = result.map_err(|source| DiskError { verb, name, source });
        Ended { result, buffer }
    }

    fn flags(&self) -> OFlags {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self.direct {
            Direct::Yes => flags | OFlags::DIRECT,
            Direct::No => flags,
        }
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<()> {
        check_name(name)?;
        let flags = self.flags() | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = fs::openat(&self.directory, name, flags, mode)?;
        let made = allocate(&file, bytes)
            .and_then(|()| Ok(fs::fsync(&file)?))
            .and_then(|()| Ok(fs::fsync(&self.directory)?));
        if let Err(error) = made {
            // The first error is the one to tell.
            fs::unlinkat(&self.directory, name, AtFlags::empty()).ok();
            return Err(error);
        }
        self.keep(name, Arc::new(file));
        Ok(())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.files.lock().remove(name);
        fs::unlinkat(&self.directory, name, AtFlags::empty())?;
        Ok(fs::fsync(&self.directory)?)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        Ok(fs::fdatasync(self.file(name)?.as_fd())?)
    }

    fn write(&self, name: &str, offset: u64, data: &Buffer) -> io::Result<()> {
        check_blocks(offset, data)?;
        let file = self.file(name)?;
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pwrite(&file, rest, offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn read(&self, name: &str, offset: u64, into: &mut Buffer) -> io::Result<()> {
        check_blocks(offset, into)?;
        let file = self.file(name)?;
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(&file, rest, offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn file(&self, name: &str) -> io::Result<Arc<OwnedFd>> {
        if let Some(file) = self.files.lock().get(name) {
            return Ok(Arc::clone(file));
        }
        check_name(name)?;
        let file = match fs::openat(&self.directory, name, self.flags(), Mode::empty()) {
            // What cannot be written may still be read.
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
                let flags = (self.flags() - OFlags::RDWR) | OFlags::RDONLY;
                fs::openat(&self.directory, name, flags, Mode::empty())?
            }
            opened => opened?,
        };
        let stat = fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        let file = Arc::new(file);
        self.keep(name, Arc::clone(&file));
        Ok(file)
    }

    fn keep(&self, name: &str, file: Arc<OwnedFd>) {
        let mut files = self.files.lock();
        if files.len() >= OPEN_FILES_MAX {
            // Names grow with their age, so the first is of the oldest file.
            files.pop_first();
        }
        files.insert(name.into(), file);
    }
}

/// Tries it, with a file that has no name.
fn try_direct(directory: &OwnedFd) -> Direct {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    let Ok(file) = fs::openat(directory, ".", flags, Mode::RUSR | Mode::WUSR) else {
        return Direct::No;
    };
    let Ok(mut block) = Buffer::zeroed(BLOCK_BYTES as usize, DIRECT_IO_ALIGN) else {
        return Direct::No;
    };
    let written = rustix::io::pwrite(&file, &block, 0);
    let read = rustix::io::pread(&file, &mut *block, 0);
    let whole = Ok(BLOCK_BYTES as usize);
    if written == whole && read == whole {
        Direct::Yes
    } else {
        Direct::No
    }
}

/// Takes all blocks at once; a file system that cannot only sets the length.
fn allocate(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    loop {
        match fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP) => return Ok(fs::ftruncate(file, bytes)?),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn check_name(name: &str) -> io::Result<()> {
    let plain = !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '\0']);
    plain.then_some(()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "a file name must be one component of a path",
        )
    })
}

fn check_blocks(offset: u64, buffer: &Buffer) -> io::Result<()> {
    let whole = offset.is_multiple_of(BLOCK_BYTES)
        && (buffer.len() as u64).is_multiple_of(BLOCK_BYTES)
        && buffer.align() >= DIRECT_IO_ALIGN;
    whole.then_some(()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "offset, length and alignment must be multiples of 4096",
        )
    })
}
