//! The names of disk operations, for those that watch or fail them.

use std::fmt;

/// Which method of the disk traits was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// [`Disk::create`](super::Disk::create).
    Create,
    /// [`Disk::open`](super::Disk::open).
    Open,
    /// [`Disk::remove`](super::Disk::remove).
    Remove,
    /// [`Disk::rename`](super::Disk::rename).
    Rename,
    /// [`Disk::link`](super::Disk::link).
    Link,
    /// [`Disk::list`](super::Disk::list).
    List,
    /// [`Disk::create_dir`](super::Disk::create_dir).
    CreateDir,
    /// [`Disk::sync_dir`](super::Disk::sync_dir).
    SyncDir,
    /// [`Disk::lock`](super::Disk::lock) and [`Disk::lock_shared`](super::Disk::lock_shared).
    Lock,
    /// [`Disk::create_log_region`](super::Disk::create_log_region).
    CreateLogRegion,
    /// [`File::read_exact_at`](super::File::read_exact_at).
    Read,
    /// [`File::write_all_at`](super::File::write_all_at).
    Write,
    /// [`File::sync`](super::File::sync).
    Sync,
    /// [`File::truncate`](super::File::truncate).
    Truncate,
    /// [`File::preallocate`](super::File::preallocate).
    Preallocate,
    /// [`File::discard`](super::File::discard).
    Discard,
    /// [`File::length_bytes`](super::File::length_bytes).
    Length,
    /// [`LogRegion::reserve`](super::LogRegion::reserve).
    Reserve,
    /// [`LogRegion::publish`](super::LogRegion::publish).
    Publish,
    /// [`LogRegion::sync`](super::LogRegion::sync).
    SyncLog,
}

impl OperationKind {
    /// Whether it changes what is on the disk, or how durable that is.
    pub fn changes_disk(self) -> bool {
        !matches!(self, Self::Open | Self::List | Self::Lock | Self::Read | Self::Length)
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Remove => "remove",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::List => "list",
            Self::CreateDir => "create directory",
            Self::SyncDir => "sync directory",
            Self::Lock => "lock",
            Self::CreateLogRegion => "create log region",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Truncate => "truncate",
            Self::Preallocate => "preallocate",
            Self::Discard => "discard",
            Self::Length => "length",
            Self::Reserve => "reserve",
            Self::Publish => "publish",
            Self::SyncLog => "sync log",
        })
    }
}
