package hcloudsim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	archX86 = "x86"
	archARM = "arm"
)

// images returns the system images for every architecture, with the smaller IDs for x86.
func images(created time.Time) []schema.Image {
	var all []schema.Image
	for _, arch := range []string{archX86, archARM} {
		for _, name := range []string{
			"ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04", "debian-12", "debian-13",
			"rocky-9", "rocky-10", "alma-9", "alma-10", "fedora-43", "centos-stream-10", "opensuse-15",
		} {
			flavor, version, _ := strings.Cut(name, "-")
			image := newImage(int64(len(all)+1), created)
			image.Type, image.Name, image.OSFlavor, image.OSVersion = "system", &name, flavor, &version
			image.Description, image.Architecture, image.RapidDeploy = name, arch, true
			all = append(all, image)
		}
	}
	return all
}

func newImage(id int64, created time.Time) schema.Image {
	size := float32(1.5)
	return schema.Image{
		ID: id, Status: "available", ImageSize: &size, DiskSize: 5, Created: &created,
		OSFlavor: "unknown", Labels: map[string]string{},
	}
}

// ImageSeed describes a snapshot to create.
type ImageSeed struct {
	Description  string            `json:"description"`
	Architecture string            `json:"architecture"` // x86 (default) or arm
	Labels       map[string]string `json:"labels"`
}

// CreateImage adds a snapshot to the project, from which servers can be created.
func (s *Simulator) CreateImage(seed ImageSeed) (schema.Image, error) {
	p, unlock := s.present()
	defer unlock()
	made := newImage(p.nextID(), p.now.UTC().Truncate(time.Second))
	made.Type, made.Description, made.Architecture = "snapshot", seed.Description, archX86
	switch seed.Architecture {
	case "", archX86:
	case archARM:
		made.Architecture = archARM
	default:
		return schema.Image{}, fmt.Errorf("creating image %q: %w", seed.Description, errInvalid("architecture", "must be x86 or arm"))
	}
	if err := checkLabels(seed.Labels); err != nil {
		return schema.Image{}, fmt.Errorf("creating image %q: %w", seed.Description, err)
	}
	made.Labels = cloneLabels(seed.Labels)
	p.images = append(p.images, made)
	return made, nil
}

func imageKey(i schema.Image) (int64, string) {
	if i.Name == nil {
		return i.ID, ""
	}
	return i.ID, *i.Name
}

// imageFor finds the image for a new server of type t. A name has one image per architecture.
func (p *project) imageFor(key schema.IDOrName, t schema.ServerType) (*schema.Image, error) {
	for _, i := range p.images {
		id, name := imageKey(i)
		switch {
		case key.ID != 0 && key.ID == id && i.Architecture != t.Architecture:
			return nil, errInvalid("image", "image is of architecture %s, server type %s of %s", i.Architecture, t.Name, t.Architecture)
		case key.ID != 0 && key.ID == id, key.ID == 0 && key.Name != "" && key.Name == name && i.Architecture == t.Architecture:
			return &i, nil
		}
	}
	return nil, errInvalid("image", "image does not exist for architecture %s", t.Architecture)
}

func (c *call) listImages() (reply, error) {
	query := c.request.URL.Query()
	sel, err := parseSelector(query.Get("label_selector"))
	if err != nil {
		return reply{}, errInvalid("label_selector", "%s", err)
	}
	var chosen []schema.Image
	for _, i := range c.images {
		_, name := imageKey(i)
		if (!query.Has("name") || name == query.Get("name")) && sel.matches(i.Labels) &&
			asked(query["type"], i.Type) && asked(query["architecture"], i.Architecture) &&
			asked(query["status"], i.Status) && !query.Has("bound_to") { // no backups exist
			chosen = append(chosen, i)
		}
	}
	return list(c, "images", chosen, order[schema.Image]{
		"id": func(a, b schema.Image) int { return cmp.Compare(a.ID, b.ID) },
		"name": func(a, b schema.Image) int {
			_, left := imageKey(a)
			_, right := imageKey(b)
			return strings.Compare(left, right)
		},
		"created": compareCreated,
	}, func(i schema.Image) schema.Image { return i })
}

// compareCreated sorts images without a creation time first.
func compareCreated(a, b schema.Image) int {
	var left, right time.Time
	set(&left, a.Created)
	set(&right, b.Created)
	return left.Compare(right)
}

func (c *call) getImage() (reply, error) {
	id, err := c.pathID("id")
	if err != nil {
		return reply{}, err
	}
	image, known := lookup(c.images, schema.IDOrName{ID: id}, imageKey)
	if !known {
		return reply{}, errNotFound("image", id)
	}
	return ok(http.StatusOK, "image", image)
}

// asked reports whether the filter is absent or contains the value.
func asked(filter []string, value string) bool {
	return len(filter) == 0 || slices.Contains(filter, value)
}
