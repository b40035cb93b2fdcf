package hcloudsim

import (
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	archX86 = "x86"
	archARM = "arm"
)

const (
	kindImage = "image"

	imageSystem   = "system"
	imageSnapshot = "snapshot"
	imageBackup   = "backup"

	imageCreating  = "creating"
	imageAvailable = "available"

	imageSize float32 = 1.5 // in GB
)

// image is the schema's image, without the fields that its base has.
type image struct {
	base
	schema.Image
}

func (p *project) renderImage(i *image) schema.Image {
	out := i.Image
	out.ID, out.Labels, out.Protection.Delete = i.id, cloneLabels(i.labels), i.protected
	return out
}

func imageOperations() []operation {
	k := kind[*image]{
		name: kindImage, plural: "images",
		rows: func(p *project) *table[*image] { return &p.images },
		body: func(p *project, i *image) any { return p.renderImage(i) },
		filters: map[string]filter[*image]{
			"type": {
				func(i *image) string { return i.Type },
				[]string{imageSystem, imageSnapshot, imageBackup, "app", "temporary"},
			},
			"architecture": {of: func(i *image) string { return i.Architecture }},
			"status":       {of: func(i *image) string { return i.Status }},
			"bound_to": {of: func(i *image) string {
				if i.BoundTo == nil {
					return ""
				}
				return strconv.FormatInt(*i.BoundTo, 10)
			}},
		},
		nameRule: func(string) error {
			return errInvalid("name", "images have no name to change")
		},
		edit:       (*image).edit,
		mayProtect: func(i *image) error { return i.checkOwned("delete") },
		mayDelete:  func(_ *project, i *image) error { return i.checkOwned("id") },
	}
	return k.operations(nil, k.protection())
}

// checkOwned returns an error about a field of a request unless the image is the project's own.
func (i *image) checkOwned(field string) error {
	if i.Type == imageSystem {
		return errInvalid(field, "image %d is of type %s", i.id, i.Type)
	}
	return nil
}

// edit also makes a snapshot of a backup.
func (i *image) edit(req updateRequest) error {
	if err := i.checkOwned("id"); err != nil {
		return err
	}
	if req.Type != nil && *req.Type != imageSnapshot {
		return errInvalid("type", "must be %s", imageSnapshot)
	}
	if set(&i.Type, req.Type); req.Type != nil {
		i.BoundTo = nil
	}
	set(&i.Description, req.Description)
	return nil
}

// images returns the system images for every architecture, with the smaller IDs for x86.
func images(created time.Time) (all table[*image]) {
	for _, arch := range []string{archX86, archARM} {
		for _, name := range []string{
			"ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04", "debian-12", "debian-13", "rocky-9",
			"rocky-10", "alma-9", "alma-10", "fedora-43", "centos-stream-10", "opensuse-15",
		} {
			flavor, version, _ := strings.Cut(name, "-")
			b := base{id: int64(len(all.rows) + 1), name: name, created: created}
			all.add(&image{b, schema.Image{
				Type: imageSystem, Status: imageAvailable, Name: &name, Description: name,
				ImageSize: new(imageSize), DiskSize: 5, Created: &created, OSFlavor: flavor,
				OSVersion: &version, Architecture: arch, RapidDeploy: true,
			}})
		}
	}
	return all
}

// imageFor finds the image for a server of type t. A name has one image per architecture.
func (p *project) imageFor(key schema.IDOrName, t schema.ServerType) (*schema.Image, error) {
	for _, i := range p.images.rows {
		fits := i.Architecture == t.Architecture
		byID := key.ID != 0 && key.ID == i.id
		byName := key.ID == 0 && key.Name != "" && key.Name == i.name
		switch {
		case i.Status != imageAvailable:
		case byID && !fits:
			return nil, errInvalid("image", "image is of architecture %s, server type %s of %s",
				i.Architecture, t.Name, t.Architecture)
		case byID, byName && fits:
			return new(p.renderImage(i)), nil
		}
	}
	return nil, errInvalid("image", "image does not exist for architecture %s", t.Architecture)
}
