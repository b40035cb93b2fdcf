package hcloudsim

import (
	"fmt"
	"net/http"
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

type volume struct {
	base
	status   string
	size     int // in GB
	location schema.Location
	format   *string // as formatted at the creation; nil: not formatted
	server   int64   // 0: not attached
}

func (v *volume) ref() ref { return ref{kindVolume, v.id} }

func checkVolumeName(name string) error {
	if !volumeName.MatchString(name) {
		return errInvalid("name", "must match %s", volumeName)
	}
	return nil
}

func volumeOperations() []operation {
	k := kind[*volume]{
		name: kindVolume, plural: "volumes",
		rows: func(p *project) *table[*volume] { return &p.volumes },
		body: func(p *project, v *volume) any { return p.renderVolume(v) },
		filters: map[string]filter[*volume]{"status": {
			func(v *volume) string { return v.status }, []string{volumeCreating, volumeAvailable},
		}},
		nameRule: checkVolumeName,
		mayDelete: func(_ *project, v *volume) error {
			if v.server == 0 {
				return nil
			}
			// https://github.com/hetznercloud/csi-driver/issues/12
			return errRefused("service_error",
				"volume with ID '%d' is still attached to a server", v.id)
		},
	}
	return k.operations((*call).createVolume,
		on(k, "attach", (*call).attachVolume),
		on(k, "detach", (*call).detachVolume),
		on(k, "resize", (*call).resizeVolume),
		k.protection(),
	)
}

func (p *project) renderVolume(v *volume) schema.Volume {
	out := schema.Volume{
		ID: v.id, Name: v.name, Labels: cloneLabels(v.labels), Created: v.created,
		Status: v.status, Size: v.size, Location: v.location, Format: v.format,
		Protection:  schema.VolumeProtection{Delete: v.protected},
		LinuxDevice: fmt.Sprintf("/dev/disk/by-id/scsi-0HC_Volume_%d", v.id),
	}
	if v.server != 0 {
		server := v.server
		out.Server = &server
	}
	return out
}

func (p *project) volumesOn(s *server) []int64 {
	ids := []int64{}
	for _, v := range p.volumes.rows {
		if v.server == s.id {
			ids = append(ids, v.id)
		}
	}
	return ids
}

// createVolume shows the volume at once. A second action attaches it, if requested.
func (c *call) createVolume() (reply, error) {
	req, err := decode[schema.VolumeCreateRequest](c)
	if err != nil {
		return reply{}, err
	}
	v, s, err := c.newVolume(req)
	if err != nil {
		return reply{}, err
	}
	v.base = c.newBase(v.name, v.labels)
	c.volumes.add(v)
	created := c.renderAction(c.begin(change{
		command: "create_volume",
		about:   []ref{v.ref()},
		finish:  func() { v.status = volumeAvailable },
		undo:    func() { c.volumes.remove(v.id) },
	}))
	next := []schema.Action{}
	if s != nil {
		next = append(next, c.renderAction(c.begin(c.volumeAttachment(v, s))))
	}
	return reply{status: http.StatusCreated, body: map[string]any{
		kindVolume: c.renderVolume(v), "action": created, "next_actions": next,
	}}, nil
}

// newVolume validates a request. It returns the volume, which has no ID yet, and its server.
func (c *call) newVolume(req schema.VolumeCreateRequest) (*volume, *server, error) {
	b, err := newNamed(&c.volumes, checkVolumeName, req.Name, req.Labels)
	if err != nil {
		return nil, nil, err
	}
	v := &volume{base: b, status: volumeCreating, size: req.Size, format: req.Format}
	switch {
	case v.size < volumeLeast || v.size > volumeMost:
		return nil, nil, errInvalid("size", "must be from %d to %d", volumeLeast, volumeMost)
	case v.format != nil && !slices.Contains([]string{"ext4", "xfs"}, *v.format):
		return nil, nil, errInvalid("format", "must be one of ext4, xfs")
	case (req.Location == nil) == (req.Server == nil):
		return nil, nil, errInvalid("location", "exactly one of location and server is required")
	case req.Location != nil:
		location, known := lookup(c.catalog.locations, *req.Location, locationKey)
		if !known {
			return nil, nil, errInvalid("location", "location does not exist")
		}
		v.location = location
		return v, nil, nil
	}
	s, err := must(&c.servers, kindServer, *req.Server)
	if err != nil {
		return nil, nil, err
	}
	v.location = s.location
	return v, s, c.mayAttachVolume(v, s, len(c.volumesOn(s)))
}

// mayAttachVolume returns an error if a volume can't be attached to a server that has others.
func (c *call) mayAttachVolume(v *volume, s *server, others int) error {
	switch {
	case v.server != 0:
		return errRefused("volume_already_attached",
			"volume %d is attached to server %d", v.id, v.server)
	case v.location.Name != s.location.Name:
		return errInvalid("server",
			"server %d is in %s, volume %d in %s", s.id, s.location.Name, v.id, v.location.Name)
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
			v.server = s.id
		}
	}}
}

func (c *call) attachVolume(
	v *volume, req schema.VolumeActionAttachVolumeRequest,
) (change, error) {
	s, err := must(&c.servers, kindServer, req.Server)
	if err != nil {
		return change{}, err
	}
	return c.volumeAttachment(v, s), c.mayAttachVolume(v, s, len(c.volumesOn(s)))
}

func (c *call) detachVolume(v *volume, _ struct{}) (change, error) {
	if v.server == 0 {
		return change{}, errInvalid("server", "the volume is attached to no server")
	}
	on := ref{kindServer, v.server}
	return change{
		command: "detach_volume",
		about:   []ref{v.ref(), on},
		finish:  func() { v.server = 0 },
	}, c.idle(on)
}

func (c *call) resizeVolume(
	v *volume, req schema.VolumeActionResizeVolumeRequest,
) (change, error) {
	if req.Size <= v.size || req.Size > volumeMost {
		return change{}, errInvalid("size", "must be from %d to %d", v.size+1, volumeMost)
	}
	return change{command: "resize_volume", finish: func() { v.size = req.Size }}, nil
}
