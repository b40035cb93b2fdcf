// Package image builds container images without a container engine: those of Kubernetes' own
// programs, under the names that kubeadm pulls, and Underlay's own, by the Dockerfile. containerd
// imports the archives by "ctr images import".
package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Files maps an image's paths to files of this machine.
type Files map[string]string

// Image is the content and configuration of a container image.
type Image struct {
	// Layers are applied in order. Images that share a layer share its copy in an archive.
	Layers []Files
	// Links maps the paths of symbolic links to their targets.
	Links map[string]string
	// Texts maps the paths of small files to their content.
	Texts map[string]string
	// User is UID:GID; empty is root.
	User       string
	Entrypoint []string
	// Command is the default arguments of the entry point.
	Command []string
	// Env has the form NAME=value, including PATH if the image needs one.
	Env    []string
	Labels map[string]string
}

// Path is a PATH in the form of Env.
const Path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Archive writes images under their full names, such as registry.k8s.io/pause:3.10, into one file.
func Archive(file string, images map[string]Image) error {
	refs := map[name.Reference]v1.Image{}
	layers := map[string]v1.Layer{}
	for _, full := range slices.Sorted(maps.Keys(images)) {
		ref, err := name.NewTag(full, name.StrictValidation)
		if err != nil {
			return fmt.Errorf("image %s: %w", full, err)
		}
		if refs[ref], err = images[full].pack(layers); err != nil {
			return fmt.Errorf("image %s: %w", full, err)
		}
	}
	if err := tarball.MultiRefWriteToFile(file, refs); err != nil {
		return fmt.Errorf("write images to %s: %w", file, err)
	}
	return nil
}

// pack reuses layers of other images, and adds new ones.
func (i Image) pack(layers map[string]v1.Layer) (v1.Image, error) {
	packed, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: i.User, Entrypoint: i.Entrypoint, Cmd: i.Command, Env: i.Env, Labels: i.Labels,
		},
	})
	if err != nil {
		return nil, err
	}
	contents := []content{}
	for _, files := range i.Layers {
		contents = append(contents, content{files: files})
	}
	if len(i.Links)+len(i.Texts) > 0 {
		contents = append(contents, content{links: i.Links, texts: i.Texts})
	}
	for _, c := range contents {
		key := fmt.Sprint(c) // fmt sorts maps
		if layers[key] == nil {
			if layers[key], err = c.layer(); err != nil {
				return nil, err
			}
		}
		if packed, err = mutate.AppendLayers(packed, layers[key]); err != nil {
			return nil, err
		}
	}
	return packed, nil
}

// content is the content of a layer.
type content struct {
	files        Files
	links, texts map[string]string
}

// layer isn't compressed: it is read once, on the same machine.
func (c content) layer() (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(c.tar(writer)) }()
		return reader, nil
	}, tarball.WithCompression(compression.None), tarball.WithMediaType(types.DockerUncompressedLayer))
}

// tar writes the content. Its owner is root and it has no times, so that the same files produce the
// same layer.
func (c content) tar(to io.Writer) error {
	out := tar.NewWriter(to)
	for _, target := range slices.Sorted(maps.Keys(c.files)) {
		if err := add(out, target, c.files[target]); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	for _, target := range slices.Sorted(maps.Keys(c.texts)) {
		text := c.texts[target]
		if err := out.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: inTar(target), Size: int64(len(text)), Mode: 0o644,
		}); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		if _, err := io.WriteString(out, text); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	for _, target := range slices.Sorted(maps.Keys(c.links)) {
		header := &tar.Header{
			Typeflag: tar.TypeSymlink, Name: inTar(target), Linkname: c.links[target], Mode: 0o777,
		}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	return out.Close()
}

func inTar(target string) string { return strings.TrimPrefix(path.Clean(target), "/") }

func add(out *tar.Writer, target, source string) error {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	err = out.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: inTar(target),
		Size: info.Size(), Mode: int64(info.Mode().Perm()),
	})
	if err == nil {
		_, err = io.Copy(out, file)
	}
	return err
}
