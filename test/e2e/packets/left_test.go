//go:build linux

package packets

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// held returns this process's resources of the machine beside files: its namespace's interfaces,
// the namespaces that it holds open, and its children.
func held(t *testing.T) string {
	t.Helper()
	links, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "-o", "link").Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(links)) {
		names = append(names, strings.Fields(line)[1])
	}
	spaces := 0
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, "net:[") {
			spaces++
		}
	}
	return fmt.Sprintf("interfaces %v, %d namespaces, children %v", names, spaces, children())
}

// children are the programs that this process has started and that still exist.
func children() []string {
	var out []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		// "pid (name) state parent", where the name may contain any characters.
		name, rest, _ := strings.Cut(string(content), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			out = append(out, name+")")
		}
	}
	return out
}

// expectNothingLeft waits until everything is as before: namespaces end a moment after their last
// process.
func expectNothingLeft(t *testing.T, before string) {
	t.Helper()
	var now string
	if !poll(context.WithoutCancel(t.Context()), patience, func() bool {
		now = held(t)
		return now == before
	}) {
		t.Errorf("left behind: %s\nbefore there were %s", now, before)
	}
}

// victim is set for a process that starts a lab in this folder and waits to be killed. The programs
// are beside it.
const victim = "UNDERLAY_PACKETS_VICTIM"

func beVictim(dir string) int {
	bin := os.Getenv(victim + "_BIN")
	o := netlab.Options{Dir: dir, Metal: true, Machines: []string{"one"}, Manager: bin + "/underlay-ccm", Agent: bin + "/underlay-agent"}
	if _, err := netlab.Start(context.Background(), o); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("up")
	select {}
}

// A lab whose process is killed leaves no program running, and so no namespace.
func TestNothingIsLeftOfAKilledProcess(t *testing.T) {
	needLab(t)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "UNDERLAY_NETLAB=") { // it must have a namespace of its own
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, victim+"="+dir, victim+"_BIN="+filepath.Dir(binaries.Agent))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "up\n" {
		t.Errorf("the lab says %q (%v)\n%s", line, err, netlab.Logs(dir, 20))
	} else if n := len(runningIn(dir)); n < 6 {
		t.Errorf("%d programs run: %q", n, runningIn(dir))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if !poll(t.Context(), patience, func() bool { return len(runningIn(dir)) == 0 }) {
		t.Errorf("still running: %q", runningIn(dir))
	}
}

// runningIn returns the programs with a working directory in a folder, or with a file of it as an
// argument.
func runningIn(dir string) []string {
	var out []string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		cwd, _ := os.Readlink(filepath.Join(filepath.Dir(file), "cwd"))
		if program := strings.ReplaceAll(string(content), "\x00", " "); cwd == dir || strings.Contains(program, dir) {
			out = append(out, program)
		}
	}
	return out
}
