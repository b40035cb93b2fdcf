package project

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// CheckImage finds out, before anything is made, whether there is the image that the run's servers
// are to have: by its name or ID, for the architecture of their type.
func (p *Project) CheckImage(ctx context.Context, image string) error {
	if p.plan.Servers == 0 {
		return nil
	}
	kind, _, err := p.client.ServerType.GetByName(ctx, p.plan.ServerType)
	if err != nil {
		return fmt.Errorf("asking for the server type %q: %w", p.plan.ServerType, err)
	}
	wanted := hcloud.ImageListOpts{Name: image, IncludeDeprecated: true}
	what := fmt.Sprintf("no image %q", image)
	if kind != nil {
		wanted.Architecture = []hcloud.Architecture{kind.Architecture}
		what += fmt.Sprintf(" for servers of type %s (%s)", kind.Name, kind.Architecture)
	}
	found, err := p.client.Image.AllWithOpts(ctx, wanted)
	if err != nil {
		return fmt.Errorf("asking for the image %q: %w", image, err)
	}
	if id, wrong := strconv.ParseInt(image, 10, 64); len(found) == 0 && wrong == nil {
		byID, _, err := p.client.Image.GetByID(ctx, id)
		if err != nil {
			return fmt.Errorf("asking for the image %d: %w", id, err)
		}
		if byID != nil && (kind == nil || byID.Architecture == kind.Architecture) {
			return nil
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("--image: the API knows %s: choose one such as debian-12", what)
	}
	return nil
}
