package kubebinary

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/gobuild"
)

// into builds the binary in a temporary folder and renames it to folder in one
// step: folder is either absent or whole, also after a crash.
func (b kubeBuild) into(ctx context.Context, folder string, progress io.Writer) error {
	fmt.Fprintf(progress, "%[1]s: building %[2]s %[3]s\n%[1]s: this happens once: %[4]s; result in %[5]s\n",
		b.name, b.parts, b.version, b.wait, folder)
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
	if err := b.compile(ctx, filepath.Join(temporary, b.name), packages, progress); err != nil {
		return err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return fmt.Errorf("open the build's folder to readers: %w", err)
	}
	if err := os.Rename(temporary, folder); err != nil {
		return fmt.Errorf("put %s in its place: %w", b.what, err)
	}
	info, err := os.Stat(filepath.Join(folder, b.name))
	if err != nil {
		return fmt.Errorf("look at what was built of %s: %w", b.what, err)
	}
	fmt.Fprintf(progress, "%s: built in %s, %d MB\n", b.name, gobuild.Since(began), info.Size()/1_000_000)
	return nil
}

// packages counts the binary's packages. On a fresh machine this also downloads the modules.
func (b kubeBuild) packages(ctx context.Context, progress io.Writer) (int, error) {
	total := 0
	cmd := b.command(ctx, "list", "-deps", b.pkg())
	cmd.Stdout = gobuild.NewLines(func(string) { total++ })
	downloads := 0
	err := gobuild.Report{Name: b.name, To: progress}.Watch(ctx, cmd, "list the packages of "+b.what,
		func(line string) { downloads += strings.Count(line, "go: downloading ") },
		func() string { return fmt.Sprintf("%d modules downloaded", downloads) })
	return total, err
}

// pkg is the program's package as an argument of the go command.
func (b kubeBuild) pkg() string {
	switch {
	case b.others != "":
		return b.others
	case b.folder == ".":
		return "."
	}
	return "./" + b.folder
}

func (b kubeBuild) compile(
	ctx context.Context, output string, packages int, progress io.Writer,
) error {
	cmd := b.command(ctx, append(b.arguments(), "-o", output, b.pkg())...)
	return gobuild.Report{Name: b.name, To: progress}.Compile(ctx, cmd, "build "+b.what, packages)
}
