package controlplane

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/underlay-ccm/underlay/test/process"
)

// progressEvery is how often a build says how far it is.
const progressEvery = 10 * time.Second

// into builds the binary in a temporary folder and renames it to folder in one
// step: folder is either absent or whole, also after a crash.
func (b kubeBuild) into(ctx context.Context, folder string, progress io.Writer) error {
	fmt.Fprintf(progress, "kube: building etcd, kube-apiserver, kube-controller-manager, kube-proxy and kubectl %s\n"+
		"kube: this happens once: some 8 minutes on two cores, with an empty build cache; result in %s\n", b.version, folder)
	began := time.Now()

	packages, err := b.packages(ctx, progress)
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(folder), "building-")
	if err != nil {
		return fmt.Errorf("make the build's folder: %w", err)
	}
	defer os.RemoveAll(temporary)
	if err := b.compile(ctx, filepath.Join(temporary, "kube"), packages, progress); err != nil {
		return err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return fmt.Errorf("open the build's folder to readers: %w", err)
	}
	if err := os.Rename(temporary, folder); err != nil {
		return fmt.Errorf("put the built control plane in its place: %w", err)
	}
	info, err := os.Stat(filepath.Join(folder, "kube"))
	if err != nil {
		return fmt.Errorf("look at the built control plane: %w", err)
	}
	fmt.Fprintf(progress, "kube: built in %s, %d MB\n", since(began), info.Size()/1_000_000)
	return nil
}

// packages counts what the binary consists of. On a fresh machine this is also
// what downloads the modules.
func (b kubeBuild) packages(ctx context.Context, progress io.Writer) (int, error) {
	total := 0
	cmd := b.command(ctx, "list", "-deps", ".")
	cmd.Stdout = newLines(func(string) { total++ })
	downloads := 0
	err := watch(ctx, cmd, "list the control plane's packages", progress,
		func(line string) { downloads += strings.Count(line, "go: downloading ") },
		func() string { return fmt.Sprintf("%d modules downloaded", downloads) })
	return total, err
}

func (b kubeBuild) compile(ctx context.Context, output string, packages int, progress io.Writer) error {
	cmd := b.command(ctx, append(b.arguments(), "-o", output, ".")...)
	compiled, linking := 0, false
	return watch(ctx, cmd, "build the control plane", progress,
		func(line string) {
			// -v names a package when its compilation begins; those in
			// Go's build cache are never named.
			if !strings.Contains(line, " ") {
				compiled++
				linking = linking || line == modulePath+"/test/kube"
			}
		},
		func() string {
			if linking {
				return "linking"
			}
			return fmt.Sprintf("%d of at most %d packages compiled", compiled, packages)
		})
}

// watch runs a go command, hands each line of its standard error to saw and
// reports status on progress from time to time. Its error ends with the last of
// what the command said.
func watch(ctx context.Context, cmd *exec.Cmd, what string, progress io.Writer, saw func(line string), status func() string) error {
	var mu sync.Mutex // saw is called while the command writes, status by the ticker
	var last []string
	cmd.Stderr = newLines(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		saw(line)
		if strings.Contains(line, " ") { // else a package's name, by -v
			last = append(last, line)[max(0, len(last)-19):]
		}
	})
	// go's compilers are its children: end the group, not just go itself.
	cmd.SysProcAttr = process.OwnGroup()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second

	began := time.Now()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // see ownGroup
		defer runtime.UnlockOSThread()
		done <- cmd.Run()
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s: %w", what, context.Cause(ctx))
			}
			return fmt.Errorf("%s: %s: %w\n%s", what, strings.Join(cmd.Args[:2], " "), err, strings.Join(last, "\n"))
		case <-tick.C:
			mu.Lock()
			fmt.Fprintf(progress, "kube: %7s  %s\n", since(began), status())
			mu.Unlock()
		}
	}
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

// newLines is a writer that calls saw with each whole line.
func newLines(saw func(line string)) io.Writer {
	return &lines{saw: saw}
}

type lines struct {
	saw     func(string)
	pending []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.pending = append(l.pending, p...)
	for {
		advance, line, _ := bufio.ScanLines(l.pending, false)
		if advance == 0 {
			return len(p), nil
		}
		l.saw(string(line))
		l.pending = l.pending[advance:]
	}
}
