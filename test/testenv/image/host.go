package image

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// HostProgram returns a program of this machine with the libraries that it needs, at the same
// paths.
func HostProgram(ctx context.Context, program string) (Files, error) {
	found, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("a program for an image: %w", err)
	}
	out, err := exec.CommandContext(ctx, "ldd", found).Output()
	if err != nil {
		return nil, fmt.Errorf("libraries of %s: %w", found, err)
	}
	files := Files{found: found}
	for line := range bytes.Lines(out) {
		// "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x…)", or the path alone.
		for word := range strings.FieldsSeq(string(line)) {
			if strings.HasPrefix(word, "/") {
				files[word] = word
			}
		}
	}
	return files, nil
}
