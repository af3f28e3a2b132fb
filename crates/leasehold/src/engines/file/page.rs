//! A line's first page, mapped into memory: reading and writing it there saves two of five system calls.
//!
//! The only unsafe code of the library.

use std::fmt;
use std::fs::File;
use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};
use rustix::fs::FallocateFlags;

/// The length of the mapping. A small line's two records fit here.
pub(super) const PAGE: usize = 4096;

/// File systems that write a block where it is. Elsewhere a full disk could end in a signal instead of an error.
const IN_PLACE: &[u64] = &[
    0x0102_1994, // tmpfs
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
];

/// The first page of a file. To be touched only while the file is locked and is known to be of this length.
pub(super) struct Page(MmapMut);

impl Page {
    /// Maps the first page of a locked file, with its room on the disk set aside; none where that is not possible.
    pub(super) fn of(file: &File) -> Option<Self> {
        let kind = rustix::fs::fstatfs(file).ok()?.f_type as u64 & 0xFFFF_FFFF;
        if !IN_PLACE.contains(&kind) {
            return None;
        }
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, PAGE as u64).ok()?;
        let how = MmapOptions::new().len(PAGE).clone();
        #[expect(unsafe_code, reason = "a mapping is unsafe by nature")]
        // SAFETY: the page is read and written only under the file's lock and after a look at the file's length.
        // Every process that knows these files does so. Another program of the same user that cut the file in the
        // middle of that could end the process with SIGBUS; it could as well have sent the signal.
        let mapped = unsafe { how.map_mut(file) };
        mapped.ok().map(Self)
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl fmt::Debug for Page {
    // Its bytes may be another's at this moment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}
