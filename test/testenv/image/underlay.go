package image

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/underlay-ccm/underlay/test/testenv/dockerfile"
)

// Underlay returns the images that the Dockerfile of a source tree builds, by the names of its
// targets. Its own lines compile their programs into a folder; files of Debian are this machine's.
func Underlay(ctx context.Context, tree, folder string) (map[string]Image, error) {
	stages, err := dockerfile.Read(filepath.Join(tree, "Dockerfile"))
	if err != nil {
		return nil, fmt.Errorf("images of Underlay: %w", err)
	}
	built := map[string]string{}
	images := map[string]Image{}
	for name, stage := range stages {
		if len(stage.BuildLines()) == 0 {
			continue
		}
		built[name] = filepath.Join(folder, name)
		if err := os.MkdirAll(built[name], 0o755); err != nil {
			return nil, fmt.Errorf("images of Underlay: %w", err)
		}
		if err := stage.Compile(ctx, tree, built[name]); err != nil {
			return nil, fmt.Errorf("images of Underlay: %w", err)
		}
	}
	for name, stage := range stages {
		if built[name] != "" {
			continue
		}
		if images[name], err = fromStage(ctx, stage, built); err != nil {
			return nil, fmt.Errorf("image %s of Underlay: %w", name, err)
		}
	}
	return images, nil
}

// packages maps Debian's packages that an image may install to the program that it needs.
func packages() map[string]string { return map[string]string{"nftables": "nft"} }

func fromStage(
	ctx context.Context, stage dockerfile.Stage, built map[string]string,
) (Image, error) {
	entrypoint, err := stage.Entrypoint()
	if err != nil {
		return Image{}, err
	}
	image := Image{User: stage.Last("USER"), Entrypoint: entrypoint, Env: []string{Path}, Labels: map[string]string{}}
	for _, line := range stage.All("LABEL") {
		for pair := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(pair, "=")
			image.Labels[key] = strings.Trim(value, `"`)
		}
	}
	installed, err := stage.Installed()
	if err != nil {
		return Image{}, err
	}
	for _, name := range installed {
		program, ok := packages()[name]
		if !ok {
			return Image{}, fmt.Errorf("it installs %s, and nobody has said for which program", name)
		}
		files, err := HostProgram(ctx, program)
		if err != nil {
			return Image{}, err
		}
		image.Layers = append(image.Layers, files)
	}
	copies, err := stage.Copies()
	if err != nil {
		return Image{}, err
	}
	for _, c := range copies {
		files := Files{}
		for _, source := range c.Sources {
			target := c.To
			if strings.HasSuffix(target, "/") {
				target += path.Base(source)
			}
			files[target] = source // of the build's base image, which this machine replaces
			if program, ok := strings.CutPrefix(source, "/out/"); ok {
				files[target] = filepath.Join(built[c.From], program)
			}
		}
		image.Layers = append(image.Layers, files)
	}
	return image, nil
}
