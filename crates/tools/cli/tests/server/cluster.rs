//! Nodes on one machine: a network namespace each, joined by a bridge; one server; one global store that all mount.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{ProcessGuard, TempTree, wait_for, wait_until};

/// How long any one step may take: a busy machine may stand still for seconds.
pub const BOUND: Duration = Duration::from_secs(60);

/// Address of the server; the nodes have the addresses after it.
const SERVER: &str = "10.77.0.1";
const PORT: &str = "4711";

/// The machine.
pub struct Cluster {
    pub tree: TempTree,
    /// The global store's directory, as the server mounts it.
    pub data: PathBuf,
    pub secret: PathBuf,
    hand: ProcessGuard,
    agents: Vec<(usize, ProcessGuard)>,
}

fn tool(program: &str, words: &str) {
    let done = Command::new(program).args(words.split(' ')).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(done.status.success(), "{program} {words}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Creates a network of its own.
fn network(name: &str) {
    let path = format!("/run/netns/{name}");
    std::fs::write(&path, "").expect("a place for a network's name");
    tool("unshare", &format!("--net={path} true"));
}

/// Returns a command for a program in the network of a node; 0 is the server's.
fn inside(node: usize, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/node{node}")).arg(program);
    clean(&mut command);
    command.stdin(Stdio::null());
    command
}

fn clean(command: &mut Command) {
    command.env_remove("FOREBAY_BURST_BUFFER").env_remove("FOREBAY_DIRS");
}

fn forebay() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_forebay"))
}

/// Starts a shell that executes each line that it reads: `start [NAME=VALUE]`, `plug NODE up|down`, or `status NODE
/// DIRECTORY`. The test itself must not fork: between fork and exec a process closes the files that it has open for
/// writing, which waits for the server.
fn hand(tree: &TempTree, data: &Path, burst_buffer: &Path, secret: &Path) -> ProcessGuard {
    let script = r#"base=$1; shift
        start() {
            (sh -c 'echo $$ >"$0.pid"; exec "$@"' "$base" env "FOREBAY_FAULT_LOG=$base.fault" "$@" >"$base.log" 2>&1
            echo $? >"$base.status") &
        }
        while read -r what node state; do
            case $what in
                start) start ${node:+"$node"} nsenter --net=/run/netns/node0 "$@" ;;
                status) nsenter "--net=/run/netns/node$node" "$1" status "$state" >"$base.said" 2>&1; echo done >"$base.done" ;;
                plug) nsenter --net=/run/netns/wire ip link set "to$node" "$state"; echo done >"$base.done" ;;
            esac
        done; wait"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(tree.path("server")).arg(forebay()).arg("serve").arg(data);
    command.arg("--burst-buffer").arg(burst_buffer).arg("--secret").arg(secret);
    command.args(["--listen", &format!("tcp:{SERVER}:{PORT}")]);
    clean(&mut command);
    ProcessGuard::spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()))
}

impl Cluster {
    /// Starts a server and `nodes` nodes. Must be called in a private namespace: the names of the networks are in
    /// `/run`.
    pub fn new(nodes: usize) -> Cluster {
        let mut cluster = Cluster::without_server(nodes);
        cluster.start_server();
        cluster
    }

    /// Two nodes that do not see the global store, and what they are shown.
    #[allow(dead_code, reason = "only some tests have such nodes")]
    pub fn of_two() -> (Cluster, PathBuf, PathBuf) {
        let mut cluster = Cluster::new(2);
        let (one, two) = (cluster.mount_names(1, &[]), cluster.mount_names(2, &[]));
        (cluster, one, two)
    }

    /// Starts nodes whose server is not started yet.
    pub fn without_server(nodes: usize) -> Cluster {
        let tree = TempTree::new();
        tool("mount", "-t tmpfs none /run");
        std::fs::create_dir("/run/netns").expect("a directory for the networks' names");
        network("wire");
        let wire = |words: String| tool("nsenter", &format!("--net=/run/netns/wire ip {words}"));
        wire("link add bridge type bridge".into());
        wire("link set bridge up".into());
        for node in 0..=nodes {
            network(&format!("node{node}"));
            wire(format!("link add to{node} type veth peer name eth0 netns node{node}"));
            wire(format!("link set to{node} master bridge up"));
            let here = |words: &str| tool("nsenter", &format!("--net=/run/netns/node{node} ip {words}"));
            here(&format!("address add 10.77.0.{}/24 dev eth0", node + 1));
            here("link set eth0 up");
            here("link set lo up");
        }
        let (data, burst_buffer) = (tree.dir("data"), tree.dir("bb"));
        let secret = tree.file("secret", "a secret of sixteen bytes or more");
        tool("chmod", &format!("600 {}", secret.display()));
        let hand = hand(&tree, &data, &burst_buffer, &secret);
        Cluster { tree, data, secret, hand, agents: Vec::new() }
    }

    pub fn address(&self) -> String {
        format!("tcp:{SERVER}:{PORT}")
    }

    fn log(&self, name: &str) -> std::fs::File {
        let path = self.tree.path(name);
        std::fs::File::options().create(true).append(true).open(path).expect("a log")
    }

    /// Starts the server. Returns when it serves.
    pub fn start_server(&mut self) {
        self.start_server_with("");
    }

    /// Starts the server with a variable in its environment.
    pub fn start_server_with(&mut self, variable: &str) {
        for file in ["server.log", "server.pid", "server.status"] {
            let _ = std::fs::remove_file(self.tree.path(file));
        }
        self.tell(&format!("start {variable}\n"));
        let said = self.tree.path("server.log");
        wait_until("the server serves", BOUND, || {
            std::fs::read_to_string(&said).is_ok_and(|text| text.contains("serving"))
        });
    }

    fn server(&self) -> Pid {
        let pid = std::fs::read_to_string(self.tree.path("server.pid")).expect("a server");
        pid.trim().parse().ok().and_then(Pid::from_raw).expect("a process id")
    }

    fn signal_server(&self, signal: Signal) {
        kill_process(self.server(), signal).expect("a server that runs");
    }

    /// Stops all threads of the server.
    pub fn stop_server(&self) {
        self.signal_server(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.server().as_raw_nonzero());
        let stands = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.expect("a thread").path().join("stat"));
            stat.is_ok_and(|text| text.contains(") T "))
        };
        wait_until("every thread stands still", BOUND, || std::fs::read_dir(&tasks).expect("a server").all(stands));
    }

    /// Returns how long a program with `file` open for writing takes to end by a signal while the server is stopped.
    #[allow(dead_code, reason = "only some tests end programs so")]
    fn death_without_server(&self, file: &Path, signal: Signal) -> Duration {
        let ready = self.tree.path("ready");
        let _ = std::fs::remove_file(&ready);
        let script =
            format!("ulimit -c 0; exec 3>{}; echo >&3; echo >{}; while :; do :; done", file.display(), ready.display());
        let mut shell = ProcessGuard::spawn(Command::new("sh").args(["-c", &script]));
        wait_until("it has the file open", BOUND, || ready.exists());
        self.stop_server();
        shell.signal(signal);
        let began = std::time::Instant::now();
        // Before anything is found wrong: whoever waits, waits for the server.
        wait_until("it ends", BOUND, || shell.ended().is_some() || began.elapsed() > BOUND / 2);
        let took = began.elapsed();
        self.continue_server();
        took
    }

    /// A program that has a file open in `directory` ends by any signal while the server is stopped.
    pub fn any_signal_ends_a_program_without_server(&self, directory: &Path) {
        for signal in [Signal::TERM, Signal::ABORT, Signal::KILL] {
            let took = self.death_without_server(&directory.join("file"), signal);
            assert!(took < Duration::from_secs(10), "{signal:?}: {took:?}");
        }
    }

    /// Continues the server.
    pub fn continue_server(&self) {
        self.signal_server(Signal::CONT);
    }

    /// Returns the server's exit status, once it has ended.
    pub fn server_status(&self) -> Option<String> {
        std::fs::read_to_string(self.tree.path("server.status")).ok().filter(|text| text.ends_with('\n'))
    }

    /// Ends the server by a signal. Returns how it ended.
    pub fn end_server_by(&self, signal: Signal) -> String {
        self.signal_server(signal);
        wait_for("the end of the server", BOUND, || self.server_status())
    }

    /// Kills the server, as a crash would.
    pub fn kill_server(&mut self) {
        assert_eq!(self.end_server_by(Signal::KILL), "137\n");
    }

    /// Asks the server to end; it drains first.
    pub fn end_server(&mut self) {
        let status = self.end_server_by(Signal::TERM);
        assert_eq!(status, "0\n", "{}", std::fs::read_to_string(self.tree.path("server.log")).unwrap());
    }

    /// Disconnects a node's network, or connects it again.
    #[allow(dead_code, reason = "only some tests cut cables")]
    pub fn plug(&mut self, node: usize, up: bool) {
        self.tell_and_wait(&format!("plug {node} {}\n", if up { "up" } else { "down" }));
    }

    /// Returns the output of `forebay status` on a node.
    pub fn status(&mut self, node: usize) -> String {
        let dir = self.tree.path(format!("node{node}"));
        self.tell_and_wait(&format!("status {node} {}\n", dir.display()));
        std::fs::read_to_string(self.tree.path("server.said")).expect("an answer")
    }

    fn tell_and_wait(&mut self, line: &str) {
        let done = self.tree.path("server.done");
        let _ = std::fs::remove_file(&done);
        self.tell(line);
        wait_until("the shell has done it", BOUND, || done.exists());
    }

    fn tell(&mut self, line: &str) {
        self.hand.child().stdin.as_mut().expect("a pipe").write_all(line.as_bytes()).expect("a shell that reads");
    }

    /// Returns the directory as programs of a node see it.
    pub fn node(&self, node: usize) -> PathBuf {
        self.tree.path(format!("node{node}"))
    }

    /// Mounts the global store on a node and accelerates it there; returns the directory.
    pub fn mount(&mut self, node: usize, options: &[&str]) -> PathBuf {
        self.mount_with(node, options, &[])
    }

    /// Mounts like `mount`, with variables in the agent's environment.
    pub fn mount_with(&mut self, node: usize, options: &[&str], environment: &[(&str, &str)]) -> PathBuf {
        let dir = self.node(node);
        if !dir.exists() {
            std::fs::create_dir(&dir).expect("a place for the node's mount");
            tool("mount", &format!("--bind {} {}", self.data.display(), dir.display()));
        }
        self.serve_node(node, dir, options, environment)
    }

    /// Shows the server's directory on a node that does not see the global store; returns where.
    #[allow(dead_code, reason = "only some tests have such nodes")]
    pub fn mount_names(&mut self, node: usize, options: &[&str]) -> PathBuf {
        let dir = self.node(node);
        if !dir.exists() {
            std::fs::create_dir(&dir).expect("a place for the node's mount");
        }
        self.serve_node(node, dir, &[&["--names", "server"], options].concat(), &[])
    }

    /// An agent that is to be killed at a fault point before it serves, and was.
    #[allow(dead_code, reason = "only some tests have such agents")]
    pub fn mount_dies(&self, node: usize, options: &[&str], point: &str) {
        let mut command = self.agent(node, &self.node(node), options);
        let log = self.log(&format!("node{node}.log"));
        let status = command.env("FOREBAY_FAULT", point).stderr(log).status().expect("an agent");
        assert!(!status.success(), "{point} was not reached");
    }

    fn agent(&self, node: usize, dir: &Path, options: &[&str]) -> Command {
        let mut command = inside(node, &forebay());
        command.arg("mount").arg(dir).arg("--foreground").args(["--server", &self.address(), "--secret"]);
        command.arg(&self.secret).args(options);
        command
    }

    fn serve_node(&mut self, node: usize, dir: PathBuf, options: &[&str], environment: &[(&str, &str)]) -> PathBuf {
        let mut command = self.agent(node, &dir, options);
        command.envs(environment.iter().copied());
        let log = self.log(&format!("node{node}.log"));
        let said = std::fs::File::create(self.tree.path(format!("node{node}.said"))).expect("a file");
        self.agents.push((node, ProcessGuard::spawn(command.stdout(said).stderr(log))));
        let log = self.tree.path(format!("node{node}.log"));
        wait_until("the node's directory is accelerated", BOUND, || {
            let ended = self.agents.last_mut().and_then(|(_, agent)| agent.ended());
            assert!(ended.is_none(), "{}", std::fs::read_to_string(&log).unwrap());
            is_mounted(&dir)
        });
        // The first request is answered.
        std::fs::metadata(&dir).expect("an accelerated directory");
        dir
    }

    /// Where programs of a node register for windows, which were mounted with `--window`.
    pub fn window_socket(&self, node: usize) -> String {
        self.exported(node, "FOREBAY_WINDOW_SOCKET")
    }

    /// The value of a variable that programs need for windows.
    pub fn exported(&self, node: usize, variable: &str) -> String {
        let said = self.tree.path(format!("node{node}.said"));
        wait_for("what programs need for windows", BOUND, || {
            testkit::exported(&std::fs::read_to_string(&said).ok()?, variable)
        })
    }

    /// Returns whether the agent of a node has ended or was killed.
    #[allow(dead_code, reason = "only some tests ask")]
    pub fn agent_has_ended(&mut self, node: usize) -> bool {
        let of_node = self.agents.iter_mut().rev().find(|(of, _)| *of == node);
        of_node.is_none_or(|(_, agent)| agent.ended().is_some())
    }

    /// Kills a node's agent, as a crash would; its mount is dead then.
    pub fn kill_agent(&mut self, node: usize) {
        self.agents.extract_if(.., |(of, _)| *of == node).for_each(|(_, mut agent)| agent.kill());
    }

    /// Sends a signal to a node's agent: one that stands still is heard of by nobody.
    #[allow(dead_code, reason = "only some tests hold agents up")]
    pub fn signal_agent(&mut self, node: usize, signal: Signal) {
        self.agents.iter_mut().filter(|(of, _)| *of == node).for_each(|(_, agent)| agent.signal(signal));
    }

    /// Detaches a dead mount.
    pub fn unmount(&self, node: usize) {
        let dir = self.tree.path(format!("node{node}"));
        rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH).expect("a mount");
    }

    /// A command on a node that goes on by itself.
    #[allow(dead_code, reason = "only some tests leave it alone")]
    pub fn spawn(&self, node: usize, words: &[&str]) -> ProcessGuard {
        ProcessGuard::spawn(inside(node, &forebay()).args(words).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Returns the output of a command on a node.
    pub fn command(&self, node: usize, words: &[&str]) -> std::process::Output {
        inside(node, &forebay()).args(words).output().expect("a command")
    }

    /// `forebay run` on a node that does not see the global store, not yet started; the script runs in the node's directory.
    #[allow(dead_code, reason = "only some tests have such nodes")]
    pub fn run_names(&self, node: usize, options: &[&str], script: &str) -> Command {
        let dir = self.node(node);
        std::fs::create_dir_all(&dir).expect("a place for the node's mount");
        let mut command = inside(node, &forebay());
        command.args(["run", "--names", "server", "--server", &self.address(), "--secret"]).arg(&self.secret);
        command.args(options).args(["--", "sh", "-c", script]).current_dir(dir);
        command
    }

    /// `forebay run` on a node over the server's own view of the directory.
    pub fn run(&self, node: usize, options: &[&str], script: &str) -> std::process::Output {
        let mut command = inside(node, &forebay());
        command.arg("run").arg("--dir").arg(&self.data).args(options).args(["--", "sh", "-c", script]);
        command.current_dir(&self.data).output().expect("a run")
    }
}

fn is_mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    table.lines().any(|line| line.contains("fuse.forebay") && line.split(' ').nth(4) == dir.to_str())
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.agents.clear();
        self.hand.kill();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let ours: Vec<PathBuf> = points.filter(|point| point.contains("/node")).map(PathBuf::from).collect();
        for point in ours.iter().rev().filter(|point| point.starts_with(self.tree.path(""))) {
            let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
        }
    }
}
