//! A bound on all memory of a process, its files' cached pages included: a control group of Linux's
//! memory controller, of version 1 or 2. It takes rights (root, or a delegated group); where it
//! cannot be set, the reason is said and reported beside the figures.

use std::fs;
use std::path::{Path, PathBuf};

use crate::interrupt::{Held, attempt, hold};
use crate::run::resources::field;

/// Where version 1 mounts the memory controller, and where version 2 mounts all.
const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// What groups are called; the process that made one follows.
const PREFIX: &str = "learnedkv-bench-";

/// Removes the groups of runs that were killed.
fn remove_stale(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if maker.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            // One that still has processes stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// A group that is removed when this is dropped (its processes must have ended).
#[derive(Debug)]
pub struct Limit {
    dir: PathBuf,
    /// Dropped last: it goes at an interrupt, too.
    _held: Held,
}

impl Limit {
    /// A new group whose processes may hold `bytes` together.
    ///
    /// # Errors
    /// Why it could not be made, in words.
    pub fn new(bytes: u64) -> Result<Limit, String> {
        let v1 = Path::new(V1).join("memory.limit_in_bytes").exists();
        let (root, file) = if v1 { (V1, "memory.limit_in_bytes") } else { (V2, "memory.max") };
        remove_stale(Path::new(root));
        let dir = Path::new(root).join(format!("{PREFIX}{}", std::process::id()));
        let failed = |what: &str, e: &std::io::Error| format!("{what} {}: {e}", dir.display());
        fs::create_dir(&dir).map_err(|e| failed("could not make the control group", &e))?;
        let group = dir.clone();
        let held = hold(move || {
            attempt(|| fs::remove_dir(&group).is_ok() || !group.exists());
            None
        });
        let limit = Limit { dir: dir.clone(), _held: held };
        let limit_file = dir.join(file);
        if !limit_file.exists() {
            return Err(format!("{}: the memory controller is not on for it", dir.display()));
        }
        fs::write(&limit_file, bytes.to_string()).map_err(|e| failed("could not limit", &e))?;
        // Without swap, or what is bounded would go there; where there is no swap there is no file.
        let _ = fs::write(dir.join("memory.swap.max"), "0");
        let _ = fs::write(dir.join("memory.swappiness"), "0");
        Ok(limit)
    }

    /// Whether the kernel killed a process of the group, for want of memory.
    #[must_use]
    pub fn has_killed(&self) -> bool {
        // The counter's file in version 1, and in version 2.
        ["memory.oom_control", "memory.events"].iter().any(|file| {
            let text = fs::read_to_string(self.dir.join(file)).unwrap_or_default();
            field(&text, "oom_kill ").is_some_and(|killed| killed > 0)
        })
    }

    /// Puts the process `id` into the group; what it has been given so far is not counted.
    ///
    /// # Errors
    /// Why it could not, in words.
    pub fn admit(&self, id: u32) -> Result<(), String> {
        let file = self.dir.join("cgroup.procs");
        fs::write(&file, id.to_string()).map_err(|e| format!("{}: {e}", file.display()))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // A group with a process still ending in it cannot go; an empty group costs nothing.
        for _ in 0..50 {
            match fs::remove_dir(&self.dir) {
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept_or_refused_in_words() {
        match Limit::new(64 << 20) {
            Ok(limit) => {
                let dir = limit.dir.clone();
                assert!(!limit.has_killed());
                assert!(is_killed_within(&limit), "what wants 256 MiB had them");
                assert!(limit.has_killed(), "nothing says that it was for want of memory");
                drop(limit);
                assert!(!dir.exists(), "the group is still there");
            }
            Err(why) => {
                assert!(why.contains("/sys/fs/cgroup"), "{why}");
                learnedkv_skips::skip("cgroup", &why);
            }
        }
    }

    /// Whether a process that wants four times as much as `limit` is killed.
    fn is_killed_within(limit: &Limit) -> bool {
        // `tail` keeps the last line, which here has no end.
        let mut child = std::process::Command::new("tail")
            .args(["-n", "1"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        limit.admit(child.id()).unwrap();
        let mut input = child.stdin.take().unwrap();
        let piece = vec![0; 1 << 20];
        let all_taken = (0..256).all(|_| std::io::Write::write_all(&mut input, &piece).is_ok());
        drop(input);
        let status = child.wait().unwrap();
        !all_taken && std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
    }
}
