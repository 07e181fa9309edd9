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
