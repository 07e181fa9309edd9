# Sourced: where the tools are, whatever shell or service started us.
HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
export HOME
case ":$PATH:" in
  *":$HOME/.cargo/bin:"*) ;;
  *) [ -d "$HOME/.cargo/bin" ] && PATH="$HOME/.cargo/bin:$PATH" ;;
esac
case ":$PATH:" in
  *:/usr/sbin:*) ;;
  *) PATH="$PATH:/usr/sbin:/sbin" ;;
esac
export PATH

# Unmounts everything below a directory, the deepest first.
unmount_below() { # DIR
  local mounted
  for mounted in $(awk -v below="$1/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r); do
    umount --lazy "$mounted" 2>/dev/null
  done
}
