package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildManager builds underlay-ccm, as it is released, into a folder and
// returns its path.
func BuildManager(ctx context.Context, folder string) (string, error) {
	return build(ctx, folder, "underlay-ccm")
}

// BuildAgent builds underlay-agent likewise.
func BuildAgent(ctx context.Context, folder string) (string, error) {
	return build(ctx, folder, "underlay-agent")
}

// BuildReader builds underlayctl likewise.
func BuildReader(ctx context.Context, folder string) (string, error) {
	return build(ctx, folder, "underlayctl")
}

// BuildSimulator builds hcloud-sim likewise.
func BuildSimulator(ctx context.Context, folder string) (string, error) {
	return build(ctx, folder, "hcloud-sim")
}

// BuildWireGuard builds wireguard-go, which is a WireGuard device for kernels without one.
func BuildWireGuard(ctx context.Context, folder string) (string, error) {
	return build(ctx, folder, "wireguard")
}

// BuildAll builds all programs of cmd likewise.
func BuildAll(ctx context.Context, folder string) error {
	_, err := build(ctx, folder, "...")
	return err
}

func build(ctx context.Context, folder, program string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	path := "./cmd/" + program
	if program == "wireguard" {
		path = "golang.zx2c4.com/wireguard"
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", folder+"/", path)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return filepath.Join(folder, program), nil
}

// Manifests is the folder deploy of the source tree.
func Manifests(ctx context.Context) (string, error) {
	root, err := moduleRoot(ctx)
	return filepath.Join(root, "deploy"), err
}

// moduleRoot is the root folder of the main module.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return "", fmt.Errorf("finding the module: not inside a module; run this from within the source tree")
	}
	return filepath.Dir(file), nil
}
