package hcloudsim

import (
	"net/http"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// operation is one row of the API's surface, with the path as in the description.
type operation struct {
	method, path string
	do           endpoint
}

// operations returns all simulated operations. Other operations return 404, like unknown paths.
func operations() []operation {
	var all []operation
	all = append(all, actionOperations()...)
	all = append(all, catalogOperations()...)
	all = append(all, serverOperations()...)
	all = append(all, creationOperations()...)
	all = append(all, certificateOperations()...)
	all = append(all, networkOperations()...)
	all = append(all, loadBalancerOperations()...)
	all = append(all, primaryIPOperations()...)
	all = append(all, floatingIPOperations()...)
	return all
}

func actionOperations() []operation {
	return []operation{
		{"GET", "/actions", (*call).listActions},
		{"GET", "/actions/{id}", getAction("", "id")},
	}
}

func catalogOperations() []operation {
	places := func(c catalog) []schema.Location { return c.locations }
	machines := func(c catalog) []schema.ServerType { return c.serverTypes }
	balancers := func(c catalog) []schema.LoadBalancerType { return c.loadBalancerTypes }
	return []operation{
		{"GET", "/locations", catalogList("locations", places, locationKey)},
		{"GET", "/locations/{id}", catalogGet("location", places, locationKey)},
		{"GET", "/server_types", catalogList("server_types", machines, serverTypeKey)},
		{"GET", "/server_types/{id}", catalogGet("server_type", machines, serverTypeKey)},
		{"GET", "/load_balancer_types", catalogList("load_balancer_types", balancers, loadBalancerTypeKey)},
		{"GET", "/load_balancer_types/{id}", catalogGet("load_balancer_type", balancers, loadBalancerTypeKey)},
		{"GET", "/pricing", (*call).pricing},
	}
}

func serverOperations() []operation {
	rows := func(p *project) *table[*server] { return &p.servers }
	return []operation{
		{"GET", "/servers", (*call).listServers},
		{"POST", "/servers", (*call).createServer},
		{"GET", "/servers/{id}", (*call).getServer},
		{"PUT", "/servers/{id}", (*call).updateServer},
		{"DELETE", "/servers/{id}", (*call).deleteServer},
		{"POST", "/servers/{id}/actions/poweron", power("start_server", statusStarting, statusRunning)},
		{"POST", "/servers/{id}/actions/poweroff", power("stop_server", statusStopping, statusOff)},
		{"POST", "/servers/{id}/actions/shutdown", power("shutdown_server", statusStopping, statusOff)},
		{"POST", "/servers/{id}/actions/reboot", (*call).reboot},
		{"POST", "/servers/{id}/actions/reset", power("reset_server", statusStarting, statusRunning)},
		{"POST", "/servers/{id}/actions/change_dns_ptr", (*call).changeServerPointer},
		{"POST", "/servers/{id}/actions/change_protection", (*call).protectServer},
		{"POST", "/servers/{id}/actions/attach_to_network", (*call).attachServer},
		{"POST", "/servers/{id}/actions/detach_from_network", (*call).detachServer},
		{"POST", "/servers/{id}/actions/change_alias_ips", (*call).changeAliasIPs},
		{"GET", "/servers/actions", listKindActions(kindServer)},
		{"GET", "/servers/actions/{id}", getAction(kindServer, "id")},
		{"GET", "/servers/{id}/actions", listResourceActions(kindServer, rows)},
		{"GET", "/servers/{id}/actions/{action_id}", getAction(kindServer, "action_id")},
	}
}

func creationOperations() []operation {
	return []operation{
		{"GET", "/images", (*call).listImages},
		{"GET", "/images/{id}", (*call).getImage},
		{"GET", "/ssh_keys", (*call).listSSHKeys},
		{"POST", "/ssh_keys", (*call).createSSHKey},
		{"GET", "/ssh_keys/{id}", (*call).getSSHKey},
		{"PUT", "/ssh_keys/{id}", (*call).updateSSHKey},
		{"DELETE", "/ssh_keys/{id}", (*call).deleteSSHKey},
	}
}

func certificateOperations() []operation {
	rows := func(p *project) *table[*certificate] { return &p.certificates }
	return []operation{
		{"GET", "/certificates", (*call).listCertificates},
		{"POST", "/certificates", (*call).createCertificate},
		{"GET", "/certificates/{id}", (*call).getCertificate},
		{"PUT", "/certificates/{id}", (*call).updateCertificate},
		{"DELETE", "/certificates/{id}", (*call).deleteCertificate},
		{"POST", "/certificates/{id}/actions/retry", (*call).retryCertificate},
		{"GET", "/certificates/actions", listKindActions(kindCertificate)},
		{"GET", "/certificates/actions/{id}", getAction(kindCertificate, "id")},
		{"GET", "/certificates/{id}/actions", listResourceActions(kindCertificate, rows)},
		{"GET", "/certificates/{id}/actions/{action_id}", getAction(kindCertificate, "action_id")},
	}
}

func networkOperations() []operation {
	rows := func(p *project) *table[*network] { return &p.networks }
	return []operation{
		{"GET", "/networks", (*call).listNetworks},
		{"POST", "/networks", (*call).createNetwork},
		{"GET", "/networks/{id}", (*call).getNetwork},
		{"PUT", "/networks/{id}", (*call).updateNetwork},
		{"DELETE", "/networks/{id}", (*call).deleteNetwork},
		{"GET", "/networks/{id}/members", (*call).listMembers},
		{"POST", "/networks/{id}/actions/add_route", (*call).addRoute},
		{"POST", "/networks/{id}/actions/delete_route", (*call).deleteRoute},
		{"POST", "/networks/{id}/actions/add_subnet", (*call).addSubnet},
		{"POST", "/networks/{id}/actions/delete_subnet", (*call).deleteSubnet},
		{"POST", "/networks/{id}/actions/change_ip_range", (*call).changeIPRange},
		{"POST", "/networks/{id}/actions/change_protection", (*call).protectNetwork},
		{"GET", "/networks/actions", listKindActions(kindNetwork)},
		{"GET", "/networks/actions/{id}", getAction(kindNetwork, "id")},
		{"GET", "/networks/{id}/actions", listResourceActions(kindNetwork, rows)},
		{"GET", "/networks/{id}/actions/{action_id}", getAction(kindNetwork, "action_id")},
	}
}

func loadBalancerOperations() []operation {
	rows := func(p *project) *table[*loadBalancer] { return &p.loadBalancers }
	return []operation{
		{"GET", "/load_balancers", (*call).listLoadBalancers},
		{"POST", "/load_balancers", (*call).createLoadBalancer},
		{"GET", "/load_balancers/{id}", (*call).getLoadBalancer},
		{"PUT", "/load_balancers/{id}", (*call).updateLoadBalancer},
		{"DELETE", "/load_balancers/{id}", (*call).deleteLoadBalancer},
		{"POST", "/load_balancers/{id}/actions/add_service", (*call).addService},
		{"POST", "/load_balancers/{id}/actions/update_service", (*call).updateService},
		{"POST", "/load_balancers/{id}/actions/delete_service", (*call).deleteService},
		{"POST", "/load_balancers/{id}/actions/add_target", (*call).addTarget},
		{"POST", "/load_balancers/{id}/actions/remove_target", (*call).removeTarget},
		{"POST", "/load_balancers/{id}/actions/change_algorithm", (*call).changeAlgorithm},
		{"POST", "/load_balancers/{id}/actions/change_type", (*call).changeType},
		{"POST", "/load_balancers/{id}/actions/attach_to_network", (*call).attachLoadBalancerToNetwork},
		{"POST", "/load_balancers/{id}/actions/detach_from_network", (*call).detachLoadBalancerFromNetwork},
		{"POST", "/load_balancers/{id}/actions/enable_public_interface", (*call).enablePublicInterface},
		{"POST", "/load_balancers/{id}/actions/disable_public_interface", (*call).disablePublicInterface},
		{"POST", "/load_balancers/{id}/actions/change_dns_ptr", (*call).changeLoadBalancerPointer},
		{"POST", "/load_balancers/{id}/actions/change_protection", (*call).protectLoadBalancer},
		{"GET", "/load_balancers/actions", listKindActions(kindLoadBalancer)},
		{"GET", "/load_balancers/actions/{id}", getAction(kindLoadBalancer, "id")},
		{"GET", "/load_balancers/{id}/actions", listResourceActions(kindLoadBalancer, rows)},
		{"GET", "/load_balancers/{id}/actions/{action_id}", getAction(kindLoadBalancer, "action_id")},
	}
}

// routes builds the router. ServeMux rejects "/x/actions/{id}" and "/x/{id}/actions" as
// conflicting, because both match "/x/actions/actions"; so the latter paths are registered as
// "/x/{id}/{listing}" and dispatched here.
func (s *Simulator) routes() *http.ServeMux {
	mux := http.NewServeMux()
	listings := map[string]map[string]endpoint{}
	for _, op := range operations() {
		collection, listing, nested := strings.Cut(op.path, "/{id}/")
		if !nested || strings.Contains(listing, "/") {
			mux.HandleFunc(op.method+" "+op.path, s.serve(op.do))
			continue
		}
		pattern := op.method + " " + collection + "/{id}/{listing}"
		if listings[pattern] == nil {
			listings[pattern] = map[string]endpoint{}
		}
		listings[pattern][listing] = op.do
	}
	for pattern, byName := range listings {
		mux.HandleFunc(pattern, s.serve(func(c *call) (reply, error) {
			do, known := byName[c.request.PathValue("listing")]
			if !known {
				return reply{}, errNoSuchPath()
			}
			return do(c)
		}))
	}
	mux.HandleFunc("/", s.serve(func(c *call) (reply, error) { return reply{}, noOperation(mux, c.request) }))
	return mux
}

// noOperation distinguishes an unsupported method of a known path from an unknown path.
func noOperation(mux *http.ServeMux, r *http.Request) error {
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" {
			return errMethod()
		}
	}
	return errNoSuchPath()
}
