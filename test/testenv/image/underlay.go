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

// Underlay are the images that the Dockerfile of a source tree makes, by its targets' names. Their
// programs are compiled into a folder by its own lines; what it takes of Debian is this machine's.
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

// packages are Debian's that an image may install, with the program for which it does.
func packages() map[string]string { return map[string]string{"nftables": "nft"} }

func fromStage(ctx context.Context, stage dockerfile.Stage, built map[string]string) (Image, error) {
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
			files[target] = source // of the build's base, for which this machine stands in
			if program, ok := strings.CutPrefix(source, "/out/"); ok {
				files[target] = filepath.Join(built[c.From], program)
			}
		}
		image.Layers = append(image.Layers, files)
	}
	return image, nil
}
