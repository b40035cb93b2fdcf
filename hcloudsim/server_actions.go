package hcloudsim

import (
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	// simulatedPassword is constant, so that it draws nothing from the project's random numbers.
	simulatedPassword = "simulated"
	backupWindow      = "22-02"
)

// power returns an action that turns a server on or off. A boot leaves the rescue system.
func power(command, during, after string) func(*call, *server, struct{}) (change, error) {
	return func(_ *call, s *server, _ struct{}) (change, error) {
		before := s.status
		if before != after {
			s.status = during
		}
		return change{
			command: command,
			finish: func() {
				s.status = after
				s.rescue = s.rescue && after == statusOff
			},
			undo: func() { s.status = before },
		}, nil
	}
}

// reboot has no effect on a server that is off.
func (c *call) reboot(s *server, _ struct{}) (change, error) {
	finish := func() { s.rescue = s.rescue && s.status == statusOff }
	return change{command: "reboot_server", finish: finish}, nil
}

// protectServer requires equal delete and rebuild protection, as the API does.
func (c *call) protectServer(
	s *server, req schema.ServerActionChangeProtectionRequest,
) (change, error) {
	remove, rebuild := s.protected, s.protected
	set(&remove, req.Delete)
	set(&rebuild, req.Rebuild)
	if remove != rebuild {
		return change{}, errInvalid("rebuild", "must have the same value as delete")
	}
	return change{command: "change_protection", finish: func() { s.protected = remove }}, nil
}

// passwordReply adds a new root password to the reply.
func passwordReply(*action) map[string]any {
	return map[string]any{"root_password": simulatedPassword}
}

func (c *call) resetPassword(s *server, _ struct{}) (change, error) {
	if s.status != statusRunning {
		return change{}, errRefused("service_error", "the server is not running")
	}
	return change{command: "reset_password", more: passwordReply}, nil
}

// requestConsole returns credentials of a console at a host that doesn't exist (RFC 2606).
func (c *call) requestConsole(s *server, _ struct{}) (change, error) {
	return change{command: "request_console", more: func(a *action) map[string]any {
		url := fmt.Sprintf("wss://console.invalid/?server_id=%d&token=%d", s.id, a.id)
		return map[string]any{"wss_url": url, "password": simulatedPassword}
	}}, nil
}

// transition is a change of a server during which it has another status. It ends running.
func (s *server) transition(command, during string, finish func()) change {
	before := s.status
	s.status = during
	return change{
		command: command,
		finish: func() {
			finish()
			s.status = statusRunning
		},
		undo: func() { s.status = before },
	}
}

func (c *call) rebuildServer(s *server, req schema.ServerActionRebuildRequest) (change, error) {
	if s.protected {
		return change{}, errProtected(kindServer)
	}
	image, err := c.imageFor(req.Image, s.serverType)
	if err != nil {
		return change{}, err
	}
	if req.UserData != nil && len(*req.UserData) > userDataMost {
		return change{}, errInvalid("user_data", "must have at most %d bytes", userDataMost)
	}
	if int(image.DiskSize) > s.disk {
		return change{}, errInvalid("image", "image needs a disk of %g GB", image.DiskSize)
	}
	rebuild := s.transition("rebuild_server", statusRebuilding, func() {
		s.image = image
		set(&s.userData, req.UserData)
	})
	rebuild.more = passwordReply
	return rebuild, nil
}

// changeServerType keeps the disk as small as it is unless the request upgrades it.
func (c *call) changeServerType(
	s *server, req schema.ServerActionChangeTypeRequest,
) (change, error) {
	t, known := lookup(c.catalog.serverTypes, req.ServerType, serverTypeKey)
	switch {
	case !known:
		return change{}, errInvalid("server_type", "server type does not exist")
	case s.status != statusOff:
		return change{}, errRefused("server_not_stopped", "the server is not off")
	case t.ID == s.serverType.ID, t.Disk < s.disk,
		t.Architecture != s.serverType.Architecture, !offered(t, s.location):
		return change{}, errRefused("invalid_server_type",
			"server type %s is the current one, or does not fit the server",
			t.Name)
	}
	return s.transition("change_server_type", statusMigrating, func() {
		s.serverType = t
		if req.UpgradeDisk {
			s.disk = t.Disk
		}
	}), nil
}

func (c *call) createImage(s *server, req schema.ServerActionCreateImageRequest) (change, error) {
	labels, err := newLabels(req.Labels)
	if err != nil {
		return change{}, err
	}
	i := &image{Image: schema.Image{
		Type: imageSnapshot, Status: imageCreating, DiskSize: float32(s.disk),
		Description: fmt.Sprintf("%s-%d", s.name, c.now.Unix()),
		CreatedFrom: &schema.ImageCreatedFrom{ID: s.id, Name: s.name},
		OSFlavor:    "unknown", Architecture: s.serverType.Architecture,
	}}
	if s.image != nil {
		i.OSFlavor, i.OSVersion = s.image.OSFlavor, s.image.OSVersion
	}
	set(&i.Description, req.Description)
	switch set(&i.Type, req.Type); {
	case i.Type == imageBackup && s.backups:
		i.BoundTo = &s.id
	case i.Type == imageBackup:
		return change{}, errInvalid("type", "backups are not enabled for the server")
	case i.Type != imageSnapshot:
		return change{}, errInvalid("type", "must be one of snapshot, backup")
	}
	i.base = c.newBase(base{labels: labels})
	i.Created = &i.created
	c.images.add(i)
	return change{
		command: "create_image",
		about:   []ref{s.ref(), {kindImage, i.id}},
		finish:  func() { i.Status, i.ImageSize = imageAvailable, new(imageSize) },
		undo:    func() { c.images.remove(i.id) },
		more:    func(*action) map[string]any { return map[string]any{kindImage: c.renderImage(i)} },
	}, nil
}

func (c *call) enableBackup(s *server, _ struct{}) (change, error) {
	return change{command: "enable_backup", finish: func() { s.backups = true }}, nil
}

// disableBackup also deletes the backups of the server.
func (c *call) disableBackup(s *server, _ struct{}) (change, error) {
	return change{command: "disable_backup", finish: func() {
		s.backups = false
		c.dropBackups(s)
	}}, nil
}

func (p *project) dropBackups(s *server) {
	p.images.rows = slices.DeleteFunc(p.images.rows, func(i *image) bool {
		return i.BoundTo != nil && *i.BoundTo == s.id
	})
}

// enableRescue takes effect at the next boot. It is not disabled after an hour.
func (c *call) enableRescue(s *server, req schema.ServerActionEnableRescueRequest) (change, error) {
	if req.Type != nil && *req.Type != "linux64" {
		return change{}, errInvalid("type", "must be linux64")
	}
	for _, id := range req.SSHKeys {
		if _, err := must(&c.sshKeys, kindSSHKey, id); err != nil {
			return change{}, err
		}
	}
	return change{
		command: "enable_rescue",
		finish:  func() { s.rescue = true },
		more:    passwordReply,
	}, nil
}

func (c *call) disableRescue(s *server, _ struct{}) (change, error) {
	return change{command: "disable_rescue", finish: func() { s.rescue = false }}, nil
}

func (c *call) attachISO(s *server, req schema.ServerActionAttachISORequest) (change, error) {
	iso, known := lookup(c.catalog.isos(), req.ISO, isoKey)
	if !known {
		return change{}, errInvalid("iso", "ISO does not exist")
	}
	return change{command: "attach_iso", finish: func() { s.iso = &iso }}, nil
}

func (c *call) detachISO(s *server, _ struct{}) (change, error) {
	detach := change{command: "detach_iso", finish: func() { s.iso = nil }}
	detach.instant = s.iso == nil
	return detach, nil
}
