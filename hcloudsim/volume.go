package hcloudsim

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	kindVolume = "volume"

	volumeCreating  = "creating"
	volumeAvailable = "available"

	volumeLeast, volumeMost = 10, 10240 // size in GB
	volumesPerServer        = 16
)

// volumeName matches the names that volumes may have.
var volumeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)

// volume is the schema's volume, without the fields that its base has.
type volume struct {
	base
	schema.Volume
}

func (v *volume) ref() ref { return ref{kindVolume, v.id} }

func (v *volume) isAt(s *server) bool { return v.Server != nil && *v.Server == s.id }

func (p *project) renderVolume(v *volume) schema.Volume {
	out := v.Volume
	out.ID, out.Name, out.Labels, out.Created = v.id, v.name, cloneLabels(v.labels), v.created
	out.Protection.Delete = v.protected
	out.LinuxDevice = fmt.Sprintf("/dev/disk/by-id/scsi-0HC_Volume_%d", v.id)
	return out
}

func (p *project) volumesOn(s *server) []int64 {
	return ids(&p.volumes, func(v *volume) bool { return v.isAt(s) })
}

func volumeKind() kind[*volume] {
	return kind[*volume]{
		name: kindVolume, plural: "volumes",
		rows: func(p *project) *table[*volume] { return &p.volumes },
		body: func(p *project, v *volume) any { return p.renderVolume(v) },
		filters: map[string]filter[*volume]{"status": {
			func(v *volume) string { return v.Status }, []string{volumeCreating, volumeAvailable},
		}},
		nameRule: func(name string) error {
			if !volumeName.MatchString(name) {
				return errInvalid("name", "must match %s", volumeName)
			}
			return nil
		},
		mayDelete: func(_ *project, v *volume) error {
			if v.Server == nil {
				return nil
			}
			// https://github.com/hetznercloud/csi-driver/issues/12
			return errRefused("service_error",
				"volume with ID '%d' is still attached to a server", v.id)
		},
	}
}

func volumeOperations() []operation {
	k := volumeKind()
	return k.operations(create(k, (*call).createVolume),
		on(k, "attach", (*call).attachVolume),
		on(k, "detach", (*call).detachVolume),
		on(k, "resize", (*call).resizeVolume),
		k.protection(),
	)
}

// createVolume shows the volume at once. A second action attaches it, if requested.
func (c *call) createVolume(req schema.VolumeCreateRequest) (*volume, map[string]any, error) {
	b, err := volumeKind().new(c.project, req.Name, req.Labels)
	switch {
	case err != nil:
		return nil, nil, err
	case req.Size < volumeLeast || req.Size > volumeMost:
		return nil, nil, errInvalid("size", "must be from %d to %d", volumeLeast, volumeMost)
	case req.Format != nil && !slices.Contains([]string{"ext4", "xfs"}, *req.Format):
		return nil, nil, errInvalid("format", "must be one of ext4, xfs")
	}
	location, s, err := c.site(req.Location, req.Server)
	if err != nil {
		return nil, nil, err
	}
	v := &volume{base: b, Volume: schema.Volume{
		Status: volumeCreating, Size: req.Size, Format: req.Format, Location: location,
	}}
	if s != nil {
		if err := c.mayAttachVolume(v, s, len(c.volumesOn(s))); err != nil {
			return nil, nil, err
		}
	}
	v.base = c.newBase(b)
	c.volumes.add(v)
	created := c.renderAction(c.begin(change{
		command: "create_volume",
		about:   []ref{v.ref()},
		finish:  func() { v.Status = volumeAvailable },
		undo:    func() { c.volumes.remove(v.id) },
	}))
	var next []change
	if s != nil {
		next = append(next, c.volumeAttachment(v, s))
	}
	return v, map[string]any{"action": created, "next_actions": c.beginAll(next)}, nil
}

// mayAttachVolume returns an error if a volume can't be attached to a server that has others.
func (c *call) mayAttachVolume(v *volume, s *server, others int) error {
	switch {
	case v.Server != nil:
		return errRefused("volume_already_attached",
			"volume %d is attached to server %d", v.id, *v.Server)
	case v.Location.Name != s.location.Name:
		return errInvalid("server",
			"server %d is in %s, volume %d in %s", s.id, s.location.Name, v.id, v.Location.Name)
	case others >= volumesPerServer:
		// The code that the CSI driver expects.
		return errRefused("limit_exceeded_error",
			"server %d has %d volumes", s.id, volumesPerServer)
	}
	return c.idle(s.ref())
}

// volumeAttachment attaches a volume, unless the server is deleted before the action ends.
func (p *project) volumeAttachment(v *volume, s *server) change {
	return change{command: "attach_volume", about: []ref{v.ref(), s.ref()}, finish: func() {
		if _, there := p.servers.get(s.id); there {
			v.Server = new(s.id)
		}
	}}
}

func (c *call) attachVolume(v *volume, req schema.VolumeActionAttachVolumeRequest) (change, error) {
	s, err := must(&c.servers, kindServer, req.Server)
	if err != nil {
		return change{}, err
	}
	return c.volumeAttachment(v, s), c.mayAttachVolume(v, s, len(c.volumesOn(s)))
}

func (c *call) detachVolume(v *volume, _ struct{}) (change, error) {
	if v.Server == nil {
		return change{}, errInvalid("server", "the volume is attached to no server")
	}
	at := ref{kindServer, *v.Server}
	return change{
		command: "detach_volume",
		about:   []ref{v.ref(), at},
		finish:  func() { v.Server = nil },
	}, c.idle(at)
}

func (c *call) resizeVolume(v *volume, req schema.VolumeActionResizeVolumeRequest) (change, error) {
	if req.Size <= v.Size || req.Size > volumeMost {
		return change{}, errInvalid("size", "must be from %d to %d", v.Size+1, volumeMost)
	}
	return change{command: "resize_volume", finish: func() { v.Size = req.Size }}, nil
}
